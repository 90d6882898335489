# SPDX-License-Identifier: Apache-2.0
"""Which frames of a clip reach the processor: the sampling conventions of the loaders in use, by name.

Engine and trainer must sample alike: the number of frames decides the number of placeholders, and the indices
decide the time labels. The rules follow vLLM 0.25.1 to 0.29.0 (``multimodal/video.py``), NeMo RL's frame loader
and transformers' Qwen video processors, including their float behaviour.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.processors.loaders.frame_rules import (
    QWEN_FPS,
    Indices,
    evenly_cut,
    evenly_rounded,
    qwen2_count,
    qwen3_count,
    stepped,
    uniform_count,
)
from nemo_gym_video.processors.loaders.loader_settings import refuse_count_and_rate

DEFAULT_NUM_FRAMES = 32
"""Frames that vLLM asks for when the request names neither a count nor a rate."""

_FRAME_LIMIT = 1_000_000
_TOTAL_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FrameSample:
    """Sampled frames: ``indices`` into the clip (from 0) and their ``timestamps``, index / fps in seconds."""

    indices: tuple[int, ...]
    timestamps: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """What one convention is asked: a clip of ``total`` frames at ``fps``, and the request made of it."""

    total: int
    fps: float
    num_frames: int | None
    target_fps: float | None
    temporal_patch_size: int
    where: Where | None

    @property
    def uniform_count(self) -> int:
        """Frames that vLLM's uniform sampler takes: the smallest of request, clip and rate, at least 1."""
        return uniform_count(
            self.total,
            num_frames=self.num_frames or DEFAULT_NUM_FRAMES,
            seconds=self.total / self.fps,
            target_fps=self.target_fps,
        )


def sample_frames(
    convention: str,
    *,
    total: int,
    fps: float,
    num_frames: int | None = None,
    target_fps: float | None = None,
    temporal_patch_size: int | None = None,
    where: Where | None = None,
) -> FrameSample:
    """Frames that the loader called ``convention`` takes from a clip of ``total`` frames at ``fps`` a second.

    Args:
        convention: ``vllm``, ``nemo_rl``, ``qwen2_vl`` or ``qwen3_vl``.
        total: frames of the clip.
        fps: the clip's rate in frames a second.
        num_frames: requested frames; None is 32 for ``vllm`` and ``nemo_rl``, by rate for the others.
        target_fps: requested rate; for the Qwen conventions in place of ``num_frames``, and 2 is the default.
        temporal_patch_size: frames a tubelet; None is 2. Only ``nemo_rl`` and ``qwen2_vl`` look at it.
        where: place in the user's input, for the error.

    Raises:
        RowError: an unknown convention, a number out of range, or a request the loader itself refuses.
        ProcessorSettingsError: a number of frames beside a rate, for a Qwen convention.

    >>> from nemo_gym_video import sample_frames
    >>> sample_frames("vllm", total=100, fps=25.0, num_frames=4).indices
    (0, 33, 66, 99)
    """
    sampler = CONVENTIONS.get(convention) if isinstance(convention, str) else None
    if sampler is None:
        near = difflib.get_close_matches(str(convention), CONVENTIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise RowError(f"unknown sampling convention{hint}", got=convention, allowed=", ".join(CONVENTIONS),
                       where=where)  # fmt: skip
    request = SamplingRequest(
        total=_count(total, "total", where, limit=_TOTAL_LIMIT),
        fps=_rate(fps, "fps", where),
        num_frames=None if num_frames is None else _count(num_frames, "num_frames", where),
        target_fps=None if target_fps is None else _rate(target_fps, "target_fps", where),
        temporal_patch_size=(
            2
            if temporal_patch_size is None
            else _count(temporal_patch_size, "temporal_patch_size", where, limit=64)
        ),
        where=where,
    )
    refuse_count_and_rate(convention, num_frames=request.num_frames, fps=request.target_fps, where=where)
    indices = sampler(request)
    return FrameSample(tuple(indices.tolist()), tuple((indices / request.fps).tolist()))


def tubelet_labels(indices: Sequence[int], *, fps: float, temporal_patch_size: int = 2) -> tuple[str, ...]:
    """The text that stands before each tubelet of a Nemotron video; the engine joins them by newlines.

    Frames are numbered from 1 among the sampled ones. The time of a frame is its clip index times the frame
    time cut to whole milliseconds (``int(1000 / fps)``), so it drifts on rates such as 29.97; engines do the
    same, and a corrected time would change the tokens. A last, padded tubelet names only its real frames.
    """
    frame_ms = int(1000 / _rate(fps, "fps", None))
    times = [f"{index * frame_ms / 1000:.2f}" for index in indices]
    labels = []
    for start in range(0, len(times), temporal_patch_size):
        words = [
            f"{'Frame' if place == start else 'frame'} {place + 1} sampled at {times[place]} seconds"
            for place in range(start, min(start + temporal_patch_size, len(times)))
        ]
        labels.append(" and ".join(words) + ": ")
    return tuple(labels)


def _vllm(request: SamplingRequest) -> Indices:
    """Evenly spaced over the whole clip, last frame included, fractions cut off."""
    return evenly_cut(request.total, request.uniform_count)


def _nemo_rl(request: SamplingRequest) -> Indices:
    """As vLLM but rounded half-even, with a frame count that fills its tubelets.

    The count goes up to a multiple of the tubelet when both clip and request have room, else down, and is at
    least one tubelet; a clip of one frame gives that frame twice.
    """
    tubelet, count = request.temporal_patch_size, request.uniform_count
    wanted = math.ceil(count / tubelet) * tubelet
    if wanted > min(request.total, request.num_frames or DEFAULT_NUM_FRAMES):
        wanted = max(tubelet, count // tubelet * tubelet)
    return evenly_rounded(request.total, wanted)


def _qwen2_vl(request: SamplingRequest) -> Indices:
    """As transformers' Qwen2-VL video processor: an even step, whole tubelets."""
    total, tubelet = request.total, request.temporal_patch_size
    if request.num_frames is not None:
        count = round(request.num_frames / tubelet) * tubelet
    else:
        count = qwen2_count(total, request.fps, target_fps=request.target_fps or QWEN_FPS, tubelet=tubelet)
    if not 0 < count <= total:
        raise RowError(f"qwen2_vl cannot take {count} frames from this clip", got={"total": total},
                       allowed=f"at least {max(count, tubelet)} frames", where=request.where)  # fmt: skip
    return stepped(total, count)


def _qwen3_vl(request: SamplingRequest) -> Indices:
    """As transformers' Qwen3-VL video processor: evenly over the whole clip; the count may be odd."""
    if request.num_frames is not None:
        count = request.num_frames
    else:
        count = qwen3_count(request.total, request.fps, target_fps=request.target_fps or QWEN_FPS)
    return evenly_rounded(request.total, count)


CONVENTIONS: dict[str, Callable[[SamplingRequest], Indices]] = {
    "vllm": _vllm,
    "nemo_rl": _nemo_rl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl,
}
"""The loaders' rules by name."""


_CONVENTION_OF_FAMILY = {"qwen2_vl": "qwen2_vl", "qwen2_5_vl": "qwen2_vl", "qwen3_vl": "qwen3_vl"}


def default_convention(family: str | None) -> str:
    """The loader that vLLM uses for a processor family when nobody says otherwise."""
    return _CONVENTION_OF_FAMILY.get(family or "", "vllm")


def _count(value: object, name: str, where: Where | None, *, limit: int = _FRAME_LIMIT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise RowError(f"{name} is no positive number of frames", got=value, allowed=f"1 to {limit}", where=where)
    return value


def _rate(value: object, name: str, where: Where | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= 1e6:
        raise RowError(f"{name} is no positive rate", got=value, allowed="0.000001 to 1000000", where=where)
    return float(value)
