# SPDX-License-Identifier: Apache-2.0
"""Media that rows name by https URL: off by default, fetched once where a host is allowed, opened as files."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nemo_gym_video.errors import MediaSourceError, Where
from nemo_gym_video.media.network import CheckedConnector
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.servers.emit import Emitter
from nemo_gym_video.servers.fetch import Fetcher
from tests.media.test_network import HOST, PRIVATE, PUBLIC, Names, Site, certificate, serve

__all__ = ["certificate"]

Work = Callable[[Site, MediaSources, Callable[[str], Any]], Any]


def picture() -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 7, np.uint8)).save(data, "PNG")
    return data.getvalue()


def look(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]


def run(certificate: Path, root: Path, work: Work, *, allow: bool = True, address: str = PUBLIC) -> Any:
    async def main() -> Any:
        async with serve(certificate, picture()) as site:
            hosts = (f"{HOST}:{site.port}",) if allow else ()
            sources = MediaSources(SourcePolicy(roots=(root,), allow_hosts=hosts))
            fetcher = Fetcher(sources, ContentStore(root))

            async def bring(url: str) -> None:
                connector = CheckedConnector(
                    check=lambda one: one == PUBLIC,
                    lookup=Names({HOST: [address]}),
                    ssl_context=ssl.create_default_context(cafile=str(certificate)),
                )
                await fetcher.bring(look(url), Where(row=3), connector=connector)
                await connector.close()

            return await work(site, sources, bring)

    return asyncio.run(main())


def test_a_fetched_picture_is_opened_like_a_file(certificate: Path, tmp_path: Path) -> None:
    async def work(site: Site, sources: MediaSources, bring: Callable[[str], Any]) -> None:
        url = f"https://{HOST}:{site.port}/a.png"
        with pytest.raises(MediaSourceError):
            sources.open(url, kind="image")
        await bring(url)
        await bring(url)
        assert len(site.requests) == 1
        blob = sources.open(url, kind="image")
        assert blob.read_bytes() == picture()
        emission = Emitter(sources, tagged_frames="manifest", media_urls="file", store=None).emit(look(url))
        (part,) = emission.messages[0]["content"]
        assert part["image_url"].startswith("file:///")
        assert emission.items[0].source == url

    run(certificate, tmp_path, work)


def test_the_network_is_off_by_default(certificate: Path, tmp_path: Path) -> None:
    async def work(site: Site, sources: MediaSources, bring: Callable[[str], Any]) -> None:
        url = f"https://{HOST}:{site.port}/a.png"
        await bring(url)
        assert site.requests == []
        with pytest.raises(MediaSourceError):
            sources.open(url, kind="image")

    run(certificate, tmp_path, work, allow=False)


@pytest.mark.parametrize("form", ["https://elsewhere.test/a.png", "http://media.test/a.png"])
def test_other_hosts_and_schemes_are_refused_with_their_place(
    certificate: Path, tmp_path: Path, form: str
) -> None:
    async def work(site: Site, sources: MediaSources, bring: Callable[[str], Any]) -> None:
        with pytest.raises(MediaSourceError, match="row 3, message 0, part 0"):
            await bring(form)
        assert site.requests == []

    run(certificate, tmp_path, work)


def test_an_allowed_host_at_a_private_address_is_refused(certificate: Path, tmp_path: Path) -> None:
    async def work(site: Site, sources: MediaSources, bring: Callable[[str], Any]) -> None:
        with pytest.raises(MediaSourceError, match="not public"):
            await bring(f"https://{HOST}:{site.port}/a.png")
        assert site.requests == []

    run(certificate, tmp_path, work, address=PRIVATE)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_for_a_url_must_lie_below_a_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside.png").write_bytes(picture())
    sources = MediaSources(SourcePolicy(roots=(tmp_path / "root",)))
    sources.remember("https://media.test/a.png", tmp_path / "outside.png")
    with pytest.raises(MediaSourceError, match="outside the media roots"):
        sources.open("https://media.test/a.png", kind="image")
