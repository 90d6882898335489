# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of frame sampling, shared by the loaders and by ``processors.sampling``.

Every function returns frame indices (int64, from 0) or a number of frames. The order of the float operations is
part of the rule: another order gives another frame on some clips.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

QWEN_FPS = 2.0
QWEN_MIN_FRAMES = 4
QWEN_MAX_FRAMES = 768

Indices = npt.NDArray[np.int64]


def evenly_cut(total: int, count: int) -> Indices:
    """``count`` indices over the whole clip, last frame included, fractions cut off."""
    return np.linspace(0, total - 1, count, dtype=np.int64)


def evenly_rounded(total: int, count: int) -> Indices:
    """``count`` indices over the whole clip, last frame included, rounded half-even."""
    return np.linspace(0, total - 1, count).round().astype(np.int64)


def stepped(total: int, count: int) -> Indices:
    """An even step through the clip, so the last frame is usually left out; fractions cut off.

    The loader's step runs in float64 and is stored as float32 before it is cut: plain float64 differs by a frame
    on some clips. The step can also yield one index past the end, which vLLM pulls back to the last frame. (Past
    20,000 frames torch's own result depends on the width of the CPU's vectors; this is its scalar form.)
    """
    step = total / count
    steps = np.arange(math.ceil(total / step), dtype=np.float64)
    return np.minimum((steps * step).astype(np.float32).astype(np.int64), total - 1)


def uniform_count(total: int, *, num_frames: int | None, seconds: float, target_fps: float | None) -> int:
    """Frames of vLLM's uniform sampler: the smallest of request, clip and rate, at least 1."""
    count = total if num_frames is None else min(num_frames, total)
    if target_fps is not None:
        count = min(count, math.floor(seconds * target_fps))
    return max(1, count)


def qwen2_count(
    total: int,
    fps: float,
    *,
    target_fps: float = QWEN_FPS,
    min_frames: int = QWEN_MIN_FRAMES,
    max_frames: int = QWEN_MAX_FRAMES,
    tubelet: int = 2,
) -> int:
    """Frames by rate, within bounds, down to whole tubelets; 0 for a clip shorter than a tubelet."""
    cap = min(max_frames, total) // tubelet * tubelet
    return math.floor(min(max(total / fps * target_fps, min_frames), cap) / tubelet) * tubelet


def qwen3_count(
    total: int,
    fps: float,
    *,
    target_fps: float = QWEN_FPS,
    min_frames: int = QWEN_MIN_FRAMES,
    max_frames: int = QWEN_MAX_FRAMES,
) -> int:
    """Frames by rate, within bounds; may be odd."""
    return min(max(int(total / fps * target_fps), min_frames), max_frames, total)


def by_second(total: int, fps: float, seconds: float, *, target_fps: float, max_seconds: float) -> Indices:
    """GLM-4V: the first frame at or after every ``1 / target_fps`` seconds, ascending and without repeats.

    A clip longer than ``max_seconds`` gets as many frames as one of that length, spread over all of it. Empty for
    a clip shorter than one step.
    """
    if seconds <= max_seconds:
        wanted = np.arange(math.floor(seconds * target_fps), dtype=np.float64) * fps / target_fps
    else:
        count = int(max_seconds * target_fps)
        if count >= total:
            return np.arange(total, dtype=np.int64)
        wanted = np.linspace(0, seconds, count) * fps
    return np.unique(np.minimum(np.ceil(wanted).astype(np.int64), total - 1))


_GLM46V_RATES = ((30.0, 3.0), (300.0, 1.0), (math.inf, 0.5))
_GLM46V_MAX_SECONDS = 2400
_GLM46V_MAX_FRAMES = 640


def glm46v(total: int, fps: float, seconds: float, *, tubelet: int = 2) -> Indices:
    """GLM-4.6V: a rate that falls with the clip's length (3, 1, 0.5 a second), times the frames of a tubelet.

    With repeats, as the rule gives them; empty for a clip shorter than one step.
    """
    effective = min(seconds, _GLM46V_MAX_SECONDS)
    rate = next(rate for limit, rate in _GLM46V_RATES if effective <= limit)
    wanted = min(int(effective * rate * tubelet), _GLM46V_MAX_FRAMES)
    if total < wanted:
        return evenly_cut(total, wanted)
    taken = _one_a_step(total, 1 / fps, step=1 / (tubelet * rate), end=int(seconds))
    if len(taken) > wanted:
        return evenly_cut(total, wanted)
    if len(taken) < wanted:
        return np.linspace(taken[0], taken[-1], wanted, dtype=np.int64)
    return np.array(taken, dtype=np.int64)


def _one_a_step(total: int, frame_time: float, *, step: float, end: int) -> list[int]:
    """The first frame of every ``step`` seconds until ``end``; the clock adds up its steps, rounding included."""
    taken, clock = [], 0.0
    for index in range(total):
        if index * frame_time >= clock:
            taken.append(index)
            clock += step
            if clock >= end:
                break
    return taken


def by_last_frame_time(total: int, fps: float, *, target_fps: float, num_frames: int) -> Indices:
    """openPangu: evenly in time from the first frame to the last, at most ``num_frames``; without a rate limit
    where ``target_fps`` is -1. With repeats, as the rule gives them.
    """  # fmt: skip
    end = (total - 1) / fps if fps > 0 else 0.0
    if target_fps > 0:
        by_rate = int(end * target_fps) + 1
        if by_rate <= num_frames:
            num_frames = by_rate
            end = min(end, (by_rate - 1) / target_fps)
    return np.minimum((np.linspace(0, end, num_frames) * fps).round().astype(np.int64), total - 1)
