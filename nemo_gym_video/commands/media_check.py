# SPDX-License-Identifier: Apache-2.0
"""Opens every media file that a row names, through the source policy: what ``gym-video validate --media`` adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, NemoGymVideoError, RowError, Where
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.policy import MediaLimits
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.messages import FrameManifest, MediaKind, is_manifest_url, iter_media_parts

_CACHED = 100_000


@dataclass(frozen=True, slots=True)
class Reference:
    """One thing to open: its URL or path, what it has to be, and where the row names it."""

    url: str
    kind: MediaKind
    where: Where


class MediaCheck:
    """A check for rows; each distinct reference is opened and decoded once, in a bounded child process.

    ``notes`` counts what is allowed but worth knowing: clips that are rotated, or of variable frame rate.
    """

    def __init__(self, sources: MediaSources, *, limits: MediaLimits) -> None:
        """Open through ``sources`` only."""
        self.notes: Counter[str] = Counter()
        self.opened = 0
        self._sources = sources
        self._limits = limits
        self._decoder = BoundedDecoder(workers=1)
        self._known: dict[tuple[str, MediaKind], NemoGymVideoError | None] = {}

    def __call__(self, row: Mapping[str, Any], where: Where) -> list[NemoGymVideoError]:
        """Everything wrong with the row's media. Raises nothing."""
        try:
            references = list(references_of(row, where))
        except RowError as error:
            return [error]
        found = [self._problem(reference) for reference in references]
        return [problem for problem in found if problem is not None]

    def _problem(self, reference: Reference) -> NemoGymVideoError | None:
        key = (reference.url, reference.kind)
        if key not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[key] = self._open(reference)
        known = self._known[key]
        if known is None:
            return None
        # The first row that names a file is not the only one that has to hear of it.
        return known.at(reference.where)

    def _open(self, reference: Reference) -> NemoGymVideoError | None:
        try:
            blob = self._sources.open(reference.url, kind=reference.kind, where=reference.where)
            self.opened += 1
            if reference.kind == "image":
                self._decoder.read_image(blob, limits=self._limits, where=reference.where)
                return None
            info = self._decoder.probe_video(blob, limits=self._limits, where=reference.where)
            ends = sorted({0, info.decodable - 1})
            self._decoder.read_frames(blob, ends, limits=self._limits, where=reference.where)
        except (MediaSourceError, MediaDecodeError) as error:
            return error
        if info.decodable < info.total:
            self.notes["truncated"] += 1
        if info.rotation:
            self.notes["rotated"] += 1
        if info.variable_rate:
            self.notes["variable frame rate"] += 1
        return None

    def close(self) -> None:
        """End the child process."""
        self._decoder.close()


def references_of(row: Mapping[str, Any], where: Where) -> Iterator[Reference]:
    """Every reference of a row: typed parts of its messages, and what a multi-turn environment is to show.

    Raises:
        RowError: a part or a manifest is malformed.
    """
    params = row.get("responses_create_params")
    conversation = params.get("input") if isinstance(params, Mapping) else None
    if isinstance(conversation, list):
        for part in iter_media_parts(conversation, where=where):
            place = replace(where, message=part.message, part=part.part)
            if is_manifest_url(part.url):
                for path in FrameManifest.from_url(part.url, where=place).frame_paths:
                    yield Reference(path, "image", place)
            else:
                yield Reference(part.url, part.kind, place)
    if isinstance(row.get("video"), str):
        yield Reference(row["video"], "video", replace(where, field="video"))
    stream = row.get("stream")
    frames = stream.get("frames") if isinstance(stream, Mapping) else None
    for url in frames if isinstance(frames, list) else ():
        if isinstance(url, str):
            yield Reference(url, "image", replace(where, field="stream"))
