# SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL: images as Qwen2-VL with larger patches, videos bounded as a whole and one run a temporal group.

Derived from the behaviour of transformers 5.24 (``Qwen3VLVideoProcessor``), which vLLM asks for its counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nemo_gym_video.errors import RowError
from nemo_gym_video.processors.families.base import redefault
from nemo_gym_video.processors.families.qwen_vl import QwenSettings, check_aspect, fit
from nemo_gym_video.processors.regions import ItemCount, MediaSize


@dataclass(frozen=True, slots=True)
class Qwen3VLSettings(QwenSettings):
    """Settings of Qwen3-VL; ``video_min_pixels`` and ``video_max_pixels`` bound the whole clip."""

    family: ClassVar[str] = "qwen3_vl"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "qwen3_vl": {
            "min_pixels": 65536,
            "max_pixels": 16777216,
            "video_min_pixels": 4096,
            "video_max_pixels": 25165824,
        },
        "qwen3_vl_class_default": {},
    }
    checkpoint_names: ClassVar[tuple[str, ...]] = ("qwen3vl",)

    patch_size: int = redefault(QwenSettings.keys(), "patch_size", 16)
    video_min_pixels: int = redefault(QwenSettings.keys(), "video_min_pixels", 128 * 32 * 32)
    video_max_pixels: int = redefault(QwenSettings.keys(), "video_max_pixels", 32 * 32 * 768)
    max_video_tokens: int = redefault(QwenSettings.keys(), "max_video_tokens", 768)

    def count_video(self, item: MediaSize) -> ItemCount:
        """One region a group of ``temporal_patch_size`` frames; the last frame of an odd clip is repeated."""
        step, factor = self.temporal_patch_size, self.factor
        if item.frames < step:
            raise RowError("video has too few frames", got=item.frames, allowed=f"{step} frames or more")
        height, width = item.height, item.width
        if min(height, width) < factor:
            scale = max(factor / height, factor / width)
            height, width = int(height * scale), int(width * scale)
        check_aspect(height, width)
        most = self.video_max_pixels
        if self.cap_pixels_per_frame:
            frame = min(self.max_video_tokens * factor**2, most // item.frames)
            most = max(frame, int(self.video_min_pixels * 1.05)) * item.frames
        # round() is half-to-even on purpose: 5 frames count as 4 here, though they make 3 groups.
        volume = round(item.frames / step) * step
        rows, columns = fit(
            height, width, factor=factor, least=self.video_min_pixels, most=most, volume=volume, frames=item.frames
        )
        regions = tuple(
            self.region(rows, columns, length=rows * columns, frames=(first, min(first + step, item.frames)))
            for first in range(0, item.frames, step)
        )
        return ItemCount(kind="video", regions=regions)
