# SPDX-License-Identifier: Apache-2.0
"""Clips and pictures with known truth. A frame carries its own number as ten black or white blocks."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

Pixels = npt.NDArray[np.uint8]
MakeClip = Callable[..., Path]

WIDTH, HEIGHT, BITS, BLOCK = 160, 96, 10, 16


def numbered_frame(number: int, *, width: int = WIDTH, height: int = HEIGHT) -> Pixels:
    """[height, width, 3]: a texture that moves with ``number``, and its bits along the top, lowest first."""
    rng = np.random.default_rng(7)
    texture = np.kron(rng.integers(0, 255, (height // 8 + 1, width // 8 + 1, 3)), np.ones((8, 8, 1)))
    frame = np.roll(texture[:height, :width].astype(np.uint8), number * 3, axis=1)
    for bit in range(BITS):
        frame[: 2 * BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 255 if number >> bit & 1 else 0
    return frame


def frame_number(pixels: Pixels) -> int:
    """The number that ``numbered_frame`` wrote, read back from decoded pixels."""
    blocks = [pixels[8:24, bit * BLOCK + 4 : (bit + 1) * BLOCK - 4].mean() for bit in range(BITS)]
    assert all(level < 70 or level > 185 for level in blocks), blocks
    return sum(int(level > 127) << bit for bit, level in enumerate(blocks))


def write_clip(
    path: Path,
    *,
    frames: int = 48,
    fps: int = 24,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    gop: int | None = None,
    b_frames: int | None = None,
    times_ms: Sequence[int] | None = None,
    container_options: dict[str, str] | None = None,
    format: str | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    rotate: int = 0,
    aspect: Fraction | None = None,
    first_number: int = 0,
    audio: bool = False,
) -> Path:
    """Write numbered frames; ``times_ms`` gives each its presentation time, else they are ``fps`` a second."""
    with av.open(str(path), "w", format=format, options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=fps, options=options or {})
        stream.width, stream.height = size
        stream.pix_fmt = pix_fmt
        base = Fraction(1, fps) if times_ms is None else Fraction(1, 1000)
        stream.codec_context.time_base = base
        if gop is not None:
            stream.codec_context.gop_size = gop
        if b_frames is not None:
            stream.codec_context.max_b_frames = b_frames
        if rotate:
            stream.set_display_rotation(rotate)
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        sound = container.add_stream("aac", rate=48000) if audio else None
        for number in range(frames if times_ms is None else len(times_ms)):
            picture = numbered_frame(first_number + number, width=size[0], height=size[1])
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = number if times_ms is None else times_ms[number]
            frame.time_base = base
            container.mux(stream.encode(frame))
            if sound is not None:
                _mux_silence(container, sound, number, fps)
        container.mux(stream.encode())
        if sound is not None:
            container.mux(sound.encode())
    return path


def _mux_silence(container: Any, sound: Any, number: int, fps: int) -> None:
    samples = 48000 // fps
    silence = av.AudioFrame.from_ndarray(np.zeros((1, samples), np.float32), "fltp", "mono")
    silence.sample_rate, silence.pts, silence.time_base = 48000, number * samples, Fraction(1, 48000)
    container.mux(sound.encode(silence))


def png_bytes(pixels: Pixels, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def make_clip(tmp_path_factory: pytest.TempPathFactory) -> MakeClip:
    """``make_clip("name.mp4", **write_clip's)``: each name is written once a session."""
    folder = tmp_path_factory.mktemp("clips")

    def make(name: str, **how: Any) -> Path:
        path = folder / name
        return path if path.exists() else write_clip(path, **how)

    return make


@pytest.fixture(scope="session")
def read_number() -> Callable[[Pixels], int]:
    return frame_number


@pytest.fixture(scope="session")
def picture() -> Pixels:
    """[40, 60, 3], no symmetry."""
    return np.random.default_rng(1).integers(0, 255, (40, 60, 3), dtype=np.uint8)
