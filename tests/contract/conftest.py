# SPDX-License-Identifier: Apache-2.0
"""A media root with stills, frames of one clip, and a clip."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources


def write_clip(path: Path, *, frames: int, size: tuple[int, int] = (64, 48), fps: int = 10) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for index in range(frames):
            pixels = np.full((size[1], size[0], 3), index * 5 % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


@pytest.fixture(scope="session")
def media_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("media")
    Image.new("RGB", (640, 360), "red").save(root / "still.png")
    Image.new("RGB", (100, 80), "blue").save(root / "other.png")
    (root / "frames").mkdir()
    for index in range(6):
        Image.new("RGB", (320, 180), (index, 0, 0)).save(root / "frames" / f"{index}.png")
    write_clip(root / "clip.mp4", frames=40)
    return root


@pytest.fixture
def sources(media_root: Path) -> MediaSources:
    return MediaSources(SourcePolicy((media_root,)))
