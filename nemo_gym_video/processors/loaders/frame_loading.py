# SPDX-License-Identifier: Apache-2.0
"""The frames that one of the engine's loaders takes of a clip, index by index as vLLM 0.32 takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.processors.loaders.frame_rules import (
    QWEN_FPS,
    QWEN_MAX_FRAMES,
    QWEN_MIN_FRAMES,
    Indices,
    by_last_frame_time,
    by_second,
    evenly_cut,
    evenly_rounded,
    glm46v,
    qwen2_count,
    qwen3_count,
    stepped,
    uniform_count,
)
from nemo_gym_video.processors.loaders.loader_settings import ALL_FRAMES, LoaderSettings

_MAX_TOTAL = 1_000_000
_MIN_FPS, _MAX_FPS = 1e-3, 1e6
_MAX_SECONDS = 1e9
_GLM4V_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFrames:
    """What a loader hands on.

    Attributes:
        indices: frames of the clip, from 0, ascending, each once.
        do_sample_frames: the loader's mark that it took *all* frames; some families then sample again.
        total_num_frames: frames of the clip.
        fps: the clip's frames a second; 0 where unknown.
        duration: the clip's seconds.
    """

    indices: tuple[int, ...]
    do_sample_frames: bool
    total_num_frames: int
    fps: float
    duration: float

    @property
    def timestamps(self) -> tuple[float, ...] | None:
        """Seconds of each frame, index / fps; None where the clip's rate is unknown."""
        return tuple(index / self.fps for index in self.indices) if self.fps > 0 else None


@dataclass(frozen=True, slots=True)
class _Clip:
    total: int
    fps: float
    seconds: float


def load_frames(
    settings: LoaderSettings,
    total_num_frames: int,
    fps: float,
    duration: float | None = None,
    *,
    where: Where | None = None,
) -> LoadedFrames:
    """Frames that the loader takes of a clip.

    Args:
        settings: the loader and its arguments.
        total_num_frames: frames of the clip, as the engine's decoder counts them.
        fps: the clip's frames a second; 0 where the container does not say.
        duration: the clip's seconds; None is ``total_num_frames / fps``, as the OpenCV decoder has it.
        where: place in the user's input, for the error.

    Raises:
        MediaDecodeError: a clip that the loader fails on (no frame, too short, or of unknown rate), so that it is
            refused before the request is sent.
    """
    clip = _checked(total_num_frames, fps, duration, where)
    if clip.fps <= 0 and settings.name in _NEEDS_RATE:
        raise MediaDecodeError(f"the engine's loader {settings.name} fails on a clip of unknown frame rate",
                               got={"fps": fps}, allowed="a rate above 0", where=where)  # fmt: skip
    # The OpenCV decoder reads the clip once, forwards: a repeated index gives one frame.
    indices = np.unique(_RULES[settings.name](settings, clip))
    if not indices.size:
        raise MediaDecodeError(
            f"the engine's loader {settings.name} fails on this clip: it is too short for one frame",
            got={"total_num_frames": clip.total, "fps": clip.fps, "duration": clip.seconds},
            allowed="a longer clip, a higher rate, or another loader",
            where=where,
        )
    return LoadedFrames(
        indices=tuple(indices.tolist()),
        do_sample_frames=len(indices) == clip.total,
        total_num_frames=clip.total,
        fps=clip.fps,
        duration=clip.seconds,
    )


def _checked(total: int, fps: float, duration: float | None, where: Where | None) -> _Clip:
    if isinstance(total, bool) or not isinstance(total, int) or not 1 <= total <= _MAX_TOTAL:
        raise MediaDecodeError("total_num_frames is out of range", got=total, allowed=f"1 to {_MAX_TOTAL}",
                               where=where)  # fmt: skip
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not (fps == 0 or _MIN_FPS <= fps <= _MAX_FPS):
        raise MediaDecodeError("fps of the clip is out of range", got=fps, where=where,
                               allowed=f"0 (unknown), or {_MIN_FPS} to {_MAX_FPS:.0f}")  # fmt: skip
    seconds = (total / fps if fps > 0 else 0.0) if duration is None else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_SECONDS:
        raise MediaDecodeError("duration is out of range", got=seconds, allowed=f"0 to {_MAX_SECONDS:.0f} seconds",
                               where=where)  # fmt: skip
    return _Clip(total, float(fps), float(seconds))


def _uniform(settings: LoaderSettings, clip: _Clip) -> Indices:
    count = uniform_count(
        clip.total,
        num_frames=None if settings.num_frames == ALL_FRAMES else settings.num_frames,
        seconds=clip.seconds,
        target_fps=None if settings.fps == ALL_FRAMES else settings.fps,
    )
    return evenly_cut(clip.total, count)


def _qwen2_vl(settings: LoaderSettings, clip: _Clip) -> Indices:
    count = qwen2_count(
        clip.total,
        clip.fps,
        target_fps=settings.fps or QWEN_FPS,
        min_frames=settings.min_frames or QWEN_MIN_FRAMES,
        max_frames=settings.max_frames or QWEN_MAX_FRAMES,
        tubelet=settings.temporal_patch_size or 2,
    )
    return stepped(clip.total, count) if count else _NOTHING


def _qwen3_vl(settings: LoaderSettings, clip: _Clip) -> Indices:
    count = qwen3_count(
        clip.total,
        clip.fps,
        target_fps=settings.fps or QWEN_FPS,
        min_frames=settings.min_frames or QWEN_MIN_FRAMES,
        max_frames=settings.max_frames or QWEN_MAX_FRAMES,
    )
    return evenly_rounded(clip.total, count)


def _opencv_dynamic(settings: LoaderSettings, clip: _Clip) -> Indices:
    # A container without a duration: the loader estimates it, in whole seconds.
    seconds = clip.seconds or round((clip.total - 1) / clip.fps) + 1
    longest = _GLM4V_SECONDS if settings.max_duration is None else settings.max_duration
    target = settings.fps or QWEN_FPS
    if min(seconds, longest) * target > _MAX_TOTAL:
        raise MediaDecodeError("the loader would look at too many moments of the clip", got={"duration": seconds},
                               allowed=f"{_MAX_TOTAL} at {target} a second")  # fmt: skip
    return by_second(clip.total, clip.fps, seconds, target_fps=target, max_seconds=longest)


def _glm46v(settings: LoaderSettings, clip: _Clip) -> Indices:
    seconds = clip.seconds or round((clip.total - 1) / clip.fps) + 1
    return glm46v(clip.total, clip.fps, seconds, tubelet=settings.temporal_patch_size or 2)


def _all(settings: LoaderSettings, clip: _Clip) -> Indices:
    return np.arange(clip.total, dtype=np.int64)


def _openpangu(settings: LoaderSettings, clip: _Clip) -> Indices:
    return by_last_frame_time(
        clip.total, clip.fps, target_fps=settings.fps or QWEN_FPS, num_frames=settings.num_frames or 1
    )


_NOTHING: Indices = np.empty(0, dtype=np.int64)
_NEEDS_RATE = frozenset({"qwen2_vl", "qwen3_vl", "opencv_dynamic", "glm46v"})
_RULES: dict[str, Callable[[LoaderSettings, _Clip], Indices]] = {
    "opencv": _uniform,
    "nemotron_vl": _uniform,
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl,
    "opencv_dynamic": _opencv_dynamic,
    "glm46v": _glm46v,
    "molmo2": _all,
    "openpangu": _openpangu,
}
