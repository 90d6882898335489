# SPDX-License-Identifier: Apache-2.0
"""Chosen frames of a clip: ours against a loop that grabs every frame with OpenCV and keeps the chosen ones.

Clips are H.264 at 480x272 with a key frame every two seconds, as streaming sites cut them, and for the short clip
one key frame only, where nothing can be left out. Both sides must give the same pixels, which are also those of a
full sequential decode.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.common import Comparison, compare
from nemo_gym_video.media.video import open_clip

FPS = 24
SIZE = (480, 272)
FRAMES = 64

Pixels = npt.NDArray[np.uint8]


def write_clip(path: Path, *, seconds: int, key_every_s: int) -> None:
    """A texture that drifts under moving blocks, so that every frame differs and prediction has work to do."""
    width, height = SIZE
    rng = np.random.default_rng(0)
    texture = np.kron(rng.integers(0, 255, (height // 8, width // 4, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = key_every_s * FPS
        for number in range(seconds * FPS):
            at = number * 2 % width
            picture = texture[:, at : at + width].copy()
            x, y = number * 5 % (width - 40), number * 3 % (height - 40)
            picture[y : y + 40, x : x + 40] = number % 255
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def ours(path: Path) -> Pixels:
    with open_clip(path) as clip:
        return clip.read(_indices(clip.info.decodable)).pixels


def opencv(path: Path) -> Pixels:
    capture = cv2.VideoCapture(str(path))
    wanted = set(_indices(int(capture.get(cv2.CAP_PROP_FRAME_COUNT))))
    found = []
    place = 0
    while capture.grab():
        if place in wanted:
            found.append(cv2.cvtColor(capture.retrieve()[1], cv2.COLOR_BGR2RGB))
        place += 1
    return np.stack(found).astype(np.uint8)


def sequential(path: Path) -> Pixels:
    with av.open(str(path)) as container:
        frames = container.decode(video=0)
        wanted = set(_indices(container.streams.video[0].frames))
        kept = [frame for place, frame in enumerate(frames) if place in wanted]
    return np.stack([frame.to_ndarray(format="rgb24", interpolation="BICUBIC") for frame in kept])


def run() -> list[Comparison]:
    """Compare on a ten-minute and a five-second clip, after checking that all three ways give the same pixels."""
    cases = [
        ("10-minute clip", 600, 2, 5.0, 5),
        ("5-second clip", 5, 2, 1.0, 15),
        ("5-second clip, 1 key", 5, 5, 1.0, 15),
    ]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, seconds, key_every_s, claim, repeats in cases:
            path = Path(folder) / f"{seconds}-{key_every_s}.mp4"
            write_clip(path, seconds=seconds, key_every_s=key_every_s)
            pixels = ours(path)
            assert np.array_equal(pixels, opencv(path))
            assert np.array_equal(pixels, sequential(path))
            results.append(
                compare(
                    f"{FRAMES} frames of a {name}",
                    ours=("gym-video", partial(ours, path)),
                    reference=("OpenCV grab loop", partial(opencv, path)),
                    repeats=repeats,
                    claim=claim,
                )
            )
    return results


def _indices(total: int) -> list[int]:
    return sorted(set(np.linspace(0, total - 1, FRAMES).astype(int).tolist()))
