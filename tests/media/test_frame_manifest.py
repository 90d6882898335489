# SPDX-License-Identifier: Apache-2.0
"""A manifest's frames pass the same policy as any reference; each rule has a test that tries to get around it."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, RowError, Where
from nemo_gym_video.media.frame_manifest import MANIFEST_FRAME_LIMIT, open_manifest, write_manifest
from nemo_gym_video.media.image import read_image
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import CACHED_FRAMES_PREFIX, FrameManifest

Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def root(tmp_path: Path, picture: Pixels) -> Path:
    for name in ("root", "outside"):
        (tmp_path / name).mkdir()
        for place in range(3):
            Image.fromarray(np.roll(picture, place, axis=1)).save(tmp_path / name / f"{place}.png")
    return tmp_path / "root"


@pytest.fixture
def sources(root: Path) -> MediaSources:
    return MediaSources(SourcePolicy((root,)))


def manifest_of(*paths: object) -> str:
    return FrameManifest(frame_paths=tuple(str(path) for path in paths), fps=2.0).to_url()


def test_frames_written_are_frames_read(root: Path, sources: MediaSources, picture: Pixels) -> None:
    frames = [np.roll(picture, place, axis=0) for place in (0, 1, 0, 5)]
    manifest = write_manifest(iter(frames), ContentStore(root / "store"), fps=4.0)
    again, blobs = open_manifest(sources, manifest.to_url())
    assert again == manifest
    assert again.fps == 4.0
    assert [(read_image(blob).pixels == frame).all() for blob, frame in zip(blobs, frames, strict=True)] == [
        True
    ] * 4
    assert blobs[0].digest == blobs[2].digest != blobs[1].digest
    assert len(list((root / "store").rglob("*.png"))) == 3
    with pytest.raises(MediaDecodeError, match="no frame"):
        write_manifest(iter([]), ContentStore(root / "store"), fps=4.0)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("{root}/../outside/1.png", "climbs"),
        ("{root}/%2e%2e/outside/1.png", "climbs"),
        ("{outside}/1.png", "outside the media roots"),
        ("{root}/link.png", "outside the media roots"),
        ("/etc/passwd", "outside the media roots"),
        ("/dev/zero", "outside the media roots"),
        ("{root}/fifo", "FIFO"),
        ("{root}/folder", "folder"),
        ("{root}/missing.png", "cannot be opened"),
        ("{root}/1.png\x00", "NUL"),
        ("1.png", "not absolute"),
        ("../outside/1.png", "not absolute"),
        ("file://{root}/1.png", "not absolute"),
        ("file://evil.example/1.png", "not absolute"),
        ("https://evil.example/1.png", "not absolute"),
        ("data:image/png;base64,AAAA", "not absolute"),
    ],
)
@pytest.mark.parametrize("place", [0, 2])
def test_a_frame_that_the_policy_refuses_refuses_the_manifest(
    root: Path, sources: MediaSources, path: str, problem: str, place: int
) -> None:
    (root / "link.png").symlink_to(root.parent / "outside" / "1.png")
    (root / "folder").mkdir()
    os.mkfifo(root / "fifo")
    paths: list[object] = [root / "0.png", root / "1.png", root / "2.png"]
    paths[place] = path.replace("{root}", str(root)).replace("{outside}", str(root.parent / "outside"))
    with pytest.raises(MediaSourceError, match=problem) as refused:
        open_manifest(sources, manifest_of(*paths), where=Where(row=7))
    assert str(refused.value).startswith("row 7: ")


def test_frames_of_other_sizes_or_kinds_are_refused(root: Path, sources: MediaSources, make_clip: Any) -> None:
    Image.new("RGB", (61, 40)).save(root / "wide.png")
    with pytest.raises(MediaDecodeError, match="differ in size; got '61x40'; allowed: 60x40"):
        open_manifest(sources, manifest_of(root / "0.png", root / "wide.png"))
    (root / "clip.png").write_bytes(make_clip("plain.mp4").read_bytes())
    with pytest.raises(MediaDecodeError, match="no image format"):
        open_manifest(sources, manifest_of(root / "clip.png"))
    (root / "empty.png").touch()
    with pytest.raises(MediaDecodeError, match="is empty"):
        open_manifest(sources, manifest_of(root / "0.png", root / "empty.png"))


def test_limits_hold_for_frames(root: Path) -> None:
    tight = MediaSources(SourcePolicy((root,), MediaLimits(max_pixels=2399)))
    with pytest.raises(MediaDecodeError, match="too many pixels"):
        open_manifest(tight, manifest_of(root / "0.png"))


def test_too_many_frames_are_refused_before_one_is_opened(root: Path, sources: MediaSources) -> None:
    paths = [root / "missing.png"] * (MANIFEST_FRAME_LIMIT + 1)
    with pytest.raises(MediaSourceError, match="too many frames"):
        open_manifest(sources, manifest_of(*paths))


@pytest.mark.parametrize(
    "payload",
    [b"", b"not the magic", b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n", b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n[]",
     b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n" + json.dumps({"frame_paths": [], "metadata": {}}).encode(),
     b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n" + json.dumps({"frame_paths": ["/x"]}).encode(),
     b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n" + b"[" * 100_000],
)  # fmt: skip
def test_a_malformed_manifest_is_a_row_error(sources: MediaSources, payload: bytes) -> None:
    with pytest.raises(RowError):
        open_manifest(sources, CACHED_FRAMES_PREFIX + base64.b64encode(payload).decode())


def test_a_manifest_is_no_video_file(root: Path, sources: MediaSources) -> None:
    with pytest.raises(MediaSourceError, match="manifest"):
        sources.open(manifest_of(root / "0.png"), kind="video")
