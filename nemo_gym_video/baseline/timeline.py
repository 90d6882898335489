# SPDX-License-Identifier: Apache-2.0
"""All frames of a conversation with their times, and what changes along them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

from nemo_gym_video.baseline.refer import locate
from nemo_gym_video.baseline.seen import Pixels, SeenMedia, SeenMessage, like_first

_TIMES = re.compile(r"\bat ((?:\d{1,6}\.\d\d, ){0,4095}\d{1,6}\.\d\d) s\.")


@dataclass(frozen=True, slots=True)
class TimedFrame:
    """One frame and its time in seconds from the video's start."""

    time: float
    pixels: Pixels


def read_timeline(messages: Sequence[SeenMessage], *, duration_s: float) -> list[TimedFrame]:
    """Every frame shown so far, in order of time.

    Times come from the words before the media (``at 0.00, 1.50 s.``). When the processor took other frames of a
    clip than the words list, its own timestamps count from the first listed time. Without words they count alone,
    and where there is no clock (cached frames, stills) frames are spread evenly over ``duration_s`` seconds.
    """
    frames: list[TimedFrame] = []
    for message in messages:
        media = [part for part in message.parts if isinstance(part, SeenMedia)]
        pixels = [frame for item in media for frame in item.frames]
        written = _written_times(message.text)
        times = written if len(written) == len(pixels) else _own_times(media, len(pixels), duration_s, written[:1])
        frames += [TimedFrame(time, frame) for time, frame in zip(times, pixels, strict=True)]
    frames.sort(key=lambda frame: frame.time)
    alike = like_first([frame.pixels for frame in frames])
    return [TimedFrame(frame.time, pixels) for frame, pixels in zip(frames, alike, strict=True)]


def levels(frames: Sequence[TimedFrame]) -> list[float]:
    """Mean brightness of each frame, 0..255."""
    return [float(frame.pixels.mean()) for frame in frames]


def steps(frames: Sequence[TimedFrame]) -> list[tuple[float, float, float]]:
    """Start, end and mean absolute change (levels of 255) between each frame and the next."""
    small = [_thumbnail(frame.pixels) for frame in frames]
    return [
        (a.time, b.time, float(np.abs(after - before).mean()))
        for (a, b), (before, after) in zip(pairwise(frames), pairwise(small), strict=True)
    ]


def presence(frames: Sequence[TimedFrame], colour: str, shape: str | None) -> list[bool]:
    """In which frames the named object can be seen."""
    return [found is not None for found in locate([frame.pixels for frame in frames], colour, shape)]


def _written_times(text: str) -> list[float]:
    found = _TIMES.search(text)
    return [float(time) for time in found[1].split(", ")] if found else []


def _own_times(media: Sequence[SeenMedia], count: int, duration_s: float, start: Sequence[float]) -> list[float]:
    clock = media[0].timestamps if len(media) == 1 and media[0].kind == "video" else ()
    if clock and clock[-1] - clock[0] <= duration_s:
        return [time - clock[0] + start[0] for time in clock] if start else list(clock)
    last = duration_s * (1 - 0.5 / max(1, count))
    return [float(time) for time in np.linspace(0, last, count)]


def _thumbnail(pixels: Pixels) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.asarray(cv2.resize(pixels, (64, 36), interpolation=cv2.INTER_AREA), np.float32)
