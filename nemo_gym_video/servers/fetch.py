# SPDX-License-Identifier: Apache-2.0
"""Brings a row's https media into the media store before the row is sent, where the configuration allows hosts."""

from __future__ import annotations

import asyncio
from typing import Any

from nemo_gym_video.errors import Where
from nemo_gym_video.media.network import CheckedConnector, fetch, open_session
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import MediaPart, iter_media_parts

_SCHEMES = ("https:", "http:")


class Fetcher:
    """Fetches each URL once for an agent server's life; afterwards ``sources`` opens it like a file."""

    def __init__(self, sources: MediaSources, store: ContentStore) -> None:
        """``store`` must lie below one of the policy's roots."""
        self._sources = sources
        self._store = store
        self._here: set[str] = set()

    async def bring(
        self, conversation: Any, where: Where | None = None, *, connector: CheckedConnector | None = None
    ) -> None:
        """Fetch what typed media parts name by URL and is not here yet. Does nothing while no host is allowed.

        Raises:
            RowError: a media part is malformed.
            MediaSourceError, MediaDecodeError: the policy refuses a URL, an address or the content.
        """
        if not self._sources.policy.allow_hosts:
            return
        parts = iter_media_parts(conversation, where=where)
        missing = {part.url: part for part in parts if part.url[:6].lower().startswith(_SCHEMES)}
        wanted = [part for url, part in missing.items() if url not in self._here]
        if not wanted:
            return
        async with open_session(connector) as session:
            for part in wanted:
                await self._bring_one(part, session, where)

    async def _bring_one(self, part: MediaPart, session: Any, where: Where | None) -> None:
        place = Where(row=where.row if where else None, message=part.message, part=part.part)
        blob = await fetch(part.url, kind=part.kind, policy=self._sources.policy, session=session, where=place)
        stored = await asyncio.to_thread(self._store.put, blob.read_bytes(), suffix="")
        self._sources.remember(part.url, stored.path)
        self._here.add(part.url)
