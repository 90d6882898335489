# SPDX-License-Identifier: Apache-2.0
"""What one of the engine's video loaders is told: its name and arguments, checked before anything runs."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar

from nemo_gym_video.errors import ProcessorSettingsError, Where

ALL_FRAMES = -1
"""``num_frames`` of a loader that is to take every frame; also ``fps`` of one that is to keep the clip's rate."""

LOADER_ARGUMENTS = MappingProxyType(
    {
        "opencv": frozenset({"num_frames", "fps"}),
        "nemotron_vl": frozenset({"num_frames", "fps"}),
        "qwen2_vl": frozenset({"fps", "min_frames", "max_frames", "temporal_patch_size"}),
        "qwen3_vl": frozenset({"fps", "min_frames", "max_frames"}),
        "opencv_dynamic": frozenset({"fps", "max_duration"}),
        "glm46v": frozenset({"temporal_patch_size"}),
        "molmo2": frozenset[str](),
        "openpangu": frozenset({"num_frames", "fps"}),
    }
)
"""The loaders of vLLM whose rule is known here, each with the arguments that change what it takes."""

_UNBOUNDED_FPS = frozenset({"opencv", "nemotron_vl", "openpangu"})
_PAIR_IS_AN_ERROR = frozenset({"qwen2_vl", "qwen3_vl"})
_LIMITS = {"num_frames": 1_000_000, "min_frames": 1_000_000, "max_frames": 1_000_000, "temporal_patch_size": 64,
           "fps": 1000, "max_duration": 86_400}  # fmt: skip
_WHOLE = frozenset({"num_frames", "min_frames", "max_frames", "temporal_patch_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """One loader and its arguments, named as vLLM's ``--media-io-kwargs`` names them. None: the loader's default.

    Attributes:
        name: loader as the engine's registry calls it, see ``LOADER_ARGUMENTS``.
        num_frames: frames wanted; -1 or None is all. (The server itself fills in 32, see ``settings_from_flags``.)
        fps: frames a second wanted; -1 keeps the clip's rate where the loader allows that.
        min_frames, max_frames: bounds of a sampling by rate.
        max_duration: seconds, ``opencv_dynamic`` only; a longer clip gets no more frames (default 300).
        temporal_patch_size: frames a tubelet (default 2).
        frame_recovery: read the next good frame in place of a broken one. It changes nothing on whole clips.

    Raises:
        ProcessorSettingsError: an unknown loader, an argument out of range, or arguments that contradict.
    """

    engine: ClassVar[str] = "vllm 0.32.0, OpenCV decoder"

    name: str
    num_frames: int | None = None
    fps: float | None = None
    min_frames: int | None = None
    max_frames: int | None = None
    max_duration: float | None = None
    temporal_patch_size: int | None = None
    frame_recovery: bool = False

    def __post_init__(self) -> None:
        """Check names, ranges and pairs."""
        if not isinstance(self.name, str) or self.name not in LOADER_ARGUMENTS:
            near = difflib.get_close_matches(str(self.name), LOADER_ARGUMENTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ProcessorSettingsError(f"unknown video loader{hint}", got=self.name,
                                         allowed=", ".join(LOADER_ARGUMENTS))  # fmt: skip
        for name in _LIMITS:
            self._check_range(name)
        if not isinstance(self.frame_recovery, bool):
            raise ProcessorSettingsError("frame_recovery is not true or false", got=self.frame_recovery)
        refuse_count_and_rate(self.name, num_frames=self.num_frames, fps=self.fps)
        if None not in (self.min_frames, self.max_frames) and (self.min_frames or 0) > (self.max_frames or 0):
            raise ProcessorSettingsError("min_frames is above max_frames", got=(self.min_frames, self.max_frames))
        if self.name == "openpangu" and self.num_frames in (None, ALL_FRAMES):
            raise ProcessorSettingsError("the loader openpangu fails without num_frames", got=self.num_frames,
                                         allowed="1 or more")  # fmt: skip

    def _check_range(self, name: str) -> None:
        value = getattr(self, name)
        if value is None or (self._may_be_unbounded(name) and value == ALL_FRAMES and not isinstance(value, bool)):
            return
        number = isinstance(value, int if name in _WHOLE else int | float) and not isinstance(value, bool)
        low_enough = number and 0 < value <= _LIMITS[name] and math.isfinite(value)
        if not low_enough or (name in _WHOLE and value < 1):
            also = ", or -1" if self._may_be_unbounded(name) else ""
            raise ProcessorSettingsError(f"{name} of the loader {self.name} is out of range", got=value,
                                         allowed=f"above 0, at most {_LIMITS[name]}{also}")  # fmt: skip

    def _may_be_unbounded(self, name: str) -> bool:
        return name == "num_frames" or (name == "fps" and self.name in _UNBOUNDED_FPS)

    @property
    def arguments(self) -> dict[str, int | float | bool]:
        """The arguments that are set, as the engine takes them."""
        set_ = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return {name: value for name, value in set_.items() if value is not None and value is not False}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Arguments that are set and that this loader does not look at."""
        known = LOADER_ARGUMENTS[self.name] | {"frame_recovery"}
        return tuple(name for name in self.arguments if name not in known)


def refuse_count_and_rate(
    rule: str, *, num_frames: int | None, fps: float | None, where: Where | None = None
) -> None:
    """Refuse a count beside a rate where the family's own video processor calls the pair an error.

    The engine's loader does not complain, it drops the count; a trainer with the family's processor stops.
    """
    if rule in _PAIR_IS_AN_ERROR and num_frames not in (None, ALL_FRAMES) and fps is not None:
        raise ProcessorSettingsError(
            f"{rule} takes a number of frames or a rate, not both: the engine drops the number, and the family's "
            "own video processor refuses the pair",
            got={"num_frames": num_frames, "fps": fps},
            allowed="one of them",
            where=where,
        )
