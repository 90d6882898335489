# SPDX-License-Identifier: Apache-2.0
"""The second sampling: what a family's video processor does with a clip of which the loader took all frames."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_gym_video.errors import MediaDecodeError, ProcessorSettingsError, Where
from nemo_gym_video.processors.loaders.frame_loading import LoadedFrames
from nemo_gym_video.processors.loaders.frame_rules import (
    QWEN_FPS,
    QWEN_MAX_FRAMES,
    QWEN_MIN_FRAMES,
    evenly_rounded,
    qwen3_count,
)
from nemo_gym_video.processors.loaders.loader_settings import refuse_count_and_rate

SAMPLES_AGAIN = frozenset({"Qwen3VLVideoProcessor"})
"""Video processors that heed the loader's mark, by a rule known here."""

NEVER_SAMPLES_AGAIN = frozenset({"Qwen2VLVideoProcessor"})
"""Video processors whose engine code does not hand on the mark."""

_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondSampling:
    """A family's own sampling, of its video processor file or of ``--mm-processor-kwargs``.

    Attributes:
        video_processor: class name, as ``video_processor_type`` of the checkpoint.
        num_frames: frames wanted, in place of a rate.
        fps: frames a second wanted; None is 2.
        min_frames, max_frames: bounds of a sampling by rate.

    Raises:
        ProcessorSettingsError: an argument out of range, or a number beside a rate, which Qwen3-VL refuses.
    """

    video_processor: str
    num_frames: int | None = None
    fps: float | None = None
    min_frames: int = QWEN_MIN_FRAMES
    max_frames: int = QWEN_MAX_FRAMES

    def __post_init__(self) -> None:
        """Check ranges and the pair."""
        for name in ("num_frames", "fps", "min_frames", "max_frames"):
            value = getattr(self, name)
            number = isinstance(value, int | float if name == "fps" else int) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value <= _LIMIT):
                raise ProcessorSettingsError(f"{name} of the video processor is out of range", got=value,
                                             allowed=f"above 0, at most {_LIMIT}")  # fmt: skip
        if self.video_processor in SAMPLES_AGAIN:
            refuse_count_and_rate("qwen3_vl", num_frames=self.num_frames, fps=self.fps)


def processor_frames(
    sampling: SecondSampling, loaded: LoadedFrames, *, where: Where | None = None
) -> tuple[int, ...]:
    """Indices into the clip of the frames that reach the model, after both samplings.

    A loader that left out a frame has the last word. One that took all marks the clip, and Qwen3-VL's processor
    samples again at its own rate: 30 frames of a second become 4.

    Raises:
        ProcessorSettingsError: the clip is marked, and what this class does with the mark is not known.
        MediaDecodeError: the clip is marked, to be sampled by rate, and its own rate is unknown.
    """
    if not loaded.do_sample_frames or sampling.video_processor in NEVER_SAMPLES_AGAIN:
        return loaded.indices
    if sampling.video_processor not in SAMPLES_AGAIN:
        raise ProcessorSettingsError(
            f"the loader took all {loaded.total_num_frames} frames and marked the clip to be sampled again; what "
            f"{sampling.video_processor} then takes is not known",
            allowed=f"fewer frames than the clip has, or one of {', '.join(sorted(SAMPLES_AGAIN))}",
            where=where,
        )
    return tuple(evenly_rounded(loaded.total_num_frames, _count(sampling, loaded, where)).tolist())


def _count(sampling: SecondSampling, loaded: LoadedFrames, where: Where | None) -> int:
    if sampling.num_frames is not None:
        # More than the clip has is allowed: the processor repeats frames.
        return sampling.num_frames
    if loaded.fps <= 0:
        raise MediaDecodeError("a clip of unknown frame rate cannot be sampled again by rate", got={"fps": 0},
                               where=where)  # fmt: skip
    return qwen3_count(
        loaded.total_num_frames,
        loaded.fps,
        target_fps=sampling.fps or QWEN_FPS,
        min_frames=sampling.min_frames,
        max_frames=sampling.max_frames,
    )
