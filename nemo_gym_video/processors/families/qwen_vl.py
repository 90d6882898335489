# SPDX-License-Identifier: Apache-2.0
"""Qwen2-VL and Qwen2.5-VL: images and videos resized into pixel bounds, one run each.

Derived from the behaviour of transformers 5.24 (``Qwen2VLImageProcessorPil`` and ``Qwen2VLVideoProcessor``), which
vLLM asks for its counts.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.processors.families.base import (
    Grid,
    MediaTokens,
    ProcessorSettings,
    only,
    search_budgets,
    setting,
)
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

LARGEST_ASPECT = 200
_LEAST = ("min_pixels", "size.shortest_edge", "size.min_pixels")
_MOST = ("max_pixels", "size.longest_edge", "size.max_pixels")
# Part of the assumed context that a capped video may fill.
_CAP_SHARE = 0.9

QWEN_TOKENS = MediaTokens(
    image="<|image_pad|>",
    video="<|video_pad|>",
    start="<|vision_start|>",
    end="<|vision_end|>",
    image_id=151655,
    video_id=151656,
    start_id=151652,
    end_id=151653,
)


def check_aspect(height: float, width: float) -> None:
    """Raise ``RowError`` for a size more elongated than the processors take."""
    ratio = max(height, width) / min(height, width)
    if ratio > LARGEST_ASPECT:
        raise RowError(
            "size is too elongated", got=round(ratio, 2), allowed=f"aspect ratio up to {LARGEST_ASPECT}"
        )


def fit(height: int, width: int, *, factor: int, least: int, most: int, volume: int = 1, frames: int = 1) -> Grid:
    """Height and width in units of ``factor`` pixels that bring ``volume`` frames to ``least`` to ``most`` pixels.

    ``frames`` is the unrounded count of which ``volume`` is the rounded one (both 1 for an image).
    """
    rows, columns = round(height / factor), round(width / factor)
    pixels = volume * rows * columns * factor**2
    if pixels > most:
        shrink = math.sqrt(frames * height * width / most)
        rows = max(1, math.floor(height / shrink / factor))
        columns = max(1, math.floor(width / shrink / factor))
    elif pixels < least:
        grow = math.sqrt(least / (frames * height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
    return rows, columns


@dataclass(frozen=True, slots=True)
class QwenSettings(ProcessorSettings):
    """Settings of the Qwen families, with the defaults of the processor classes of Qwen2-VL.

    Pixel bounds are for one frame (Qwen3-VL's video bounds: for the whole clip). ``merge_size`` x ``merge_size``
    patches make a token. ``cap_pixels_per_frame`` bounds a video further, by ``max_video_tokens``.
    """

    tokens: ClassVar[MediaTokens] = QWEN_TOKENS

    patch_size: int = setting(14, kind=int, flat=("patch_size",), low=1, high=4096)
    merge_size: int = setting(
        2, kind=int, flat=("merge_size",), config=("vision_config.spatial_merge_size",), low=1, high=64
    )
    temporal_patch_size: int = setting(2, kind=int, flat=("temporal_patch_size",), low=1, high=1024)
    min_pixels: int = setting(
        56 * 56, kind=int, flat=("image_min_pixels",), inner=_LEAST, shared=_LEAST, block="image", low=1
    )
    max_pixels: int = setting(
        28 * 28 * 1280, kind=int, flat=("image_max_pixels",), inner=_MOST, shared=_MOST, block="image", low=1
    )
    video_min_pixels: int = setting(
        128 * 28 * 28, kind=int, flat=("video_min_pixels",), inner=_LEAST, shared=_LEAST, block="video", low=1
    )
    video_max_pixels: int = setting(
        28 * 28 * 768, kind=int, flat=("video_max_pixels",), inner=_MOST, shared=_MOST, block="video", low=1
    )
    cap_pixels_per_frame: bool = setting(False, kind=bool, flat=("cap_pixels_per_frame",), block="video")
    max_video_tokens: int = setting(128000, kind=int, flat=("max_video_tokens",), block="video", low=1)

    def check(self) -> None:
        """The pixel bounds must be in order."""
        for prefix in ("", "video_"):
            least, most = getattr(self, f"{prefix}min_pixels"), getattr(self, f"{prefix}max_pixels")
            if most < least:
                raise ProcessorSettingsError(
                    f"setting '{prefix}max_pixels' is below '{prefix}min_pixels'",
                    got=[least, most],
                    allowed="min <= max",
                )

    @property
    def factor(self) -> int:
        """Pixels a token takes along each side."""
        return self.patch_size * self.merge_size

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """An image is one run; a video is what the family makes of it."""
        if item.kind == "video":
            return self.count_video(item)
        return ItemCount(kind="image", regions=(self._image(item),))

    @abstractmethod
    def count_video(self, item: MediaSize) -> ItemCount:
        """The regions of one video."""

    def region(self, rows: int, columns: int, *, length: int, frames: tuple[int, int]) -> Region:
        """A run of ``length`` over ``rows`` x ``columns`` tokens a frame."""
        return Region(
            run_lengths=(length,),
            grid=(rows * self.merge_size, columns * self.merge_size),
            processed_size=(columns * self.factor, rows * self.factor),
            frames=frames,
        )

    def image_blocks(self, item: MediaSize, most: int) -> Grid:
        """Rows and columns of tokens of an image of at most ``most`` pixels."""
        check_aspect(item.height, item.width)
        return fit(item.height, item.width, factor=self.factor, least=self.min_pixels, most=most)

    def _image(self, item: MediaSize) -> Region:
        rows, columns = self.image_blocks(item, self.max_pixels)
        return self.region(rows, columns, length=rows * columns, frames=(0, 1))

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """The grid of ``target_tokens``, when just one comes out over every upper bound from the lower one on."""
        natural = self.image_blocks(size, self.max_pixels)
        full = round(size.height / self.factor) * round(size.width / self.factor) * self.factor**2
        found = {natural} if natural[0] * natural[1] == target_tokens else set()
        # Below the image's own pixels the grid shrinks with the bound; from there on it is the natural one.
        high = min(self.max_pixels, full - 1)
        if high >= self.min_pixels:
            found |= search_budgets(
                lambda most: self.image_blocks(size, most), self.min_pixels, high, target_tokens
            )
        if len(found) != 1:
            return None
        region = self.region(*found.pop(), length=target_tokens, frames=(0, 1))
        return only((region,), target_tokens)

    def engine_arguments(self) -> dict[str, object]:
        """Pixel bounds go to the processor by kind; vLLM takes all else from the checkpoint's files."""
        image = {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels}
        video = {"shortest_edge": self.video_min_pixels, "longest_edge": self.video_max_pixels}
        if image == video:
            return {"mm_processor_kwargs": {"size": image}}
        return {"mm_processor_kwargs": {"images_kwargs": {"size": image}, "videos_kwargs": {"size": video}}}


@dataclass(frozen=True, slots=True)
class _OneRunSettings(QwenSettings):
    """Qwen2-VL and Qwen2.5-VL: the bounds of a video are for one frame, and a video is one run."""

    def count_video(self, item: MediaSize) -> ItemCount:
        """One region over all frames; an odd last frame is repeated."""
        check_aspect(item.height, item.width)
        most = self.video_max_pixels
        if self.cap_pixels_per_frame:
            budget = int(self.max_video_tokens * self.factor**2 * _CAP_SHARE)
            share = budget * self.temporal_patch_size // item.frames
            most = max(min(most, share), int(self.video_min_pixels * 1.05))
        rows, columns = fit(item.height, item.width, factor=self.factor, least=self.video_min_pixels, most=most)
        groups = math.ceil(item.frames / self.temporal_patch_size)
        region = self.region(rows, columns, length=groups * rows * columns, frames=(0, item.frames))
        return ItemCount(kind="video", regions=(region,))


_RELEASED = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "video_min_pixels": 3136,
    "video_max_pixels": 12845056,
}


@dataclass(frozen=True, slots=True)
class Qwen2VLSettings(_OneRunSettings):
    """Settings of Qwen2-VL."""

    family: ClassVar[str] = "qwen2_vl"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"qwen2_vl": _RELEASED, "qwen2_vl_class_default": {}}
    checkpoint_names: ClassVar[tuple[str, ...]] = ("qwen2vl",)


@dataclass(frozen=True, slots=True)
class Qwen25VLSettings(_OneRunSettings):
    """Settings of Qwen2.5-VL, whose counts are Qwen2-VL's."""

    family: ClassVar[str] = "qwen2_5_vl"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "qwen2_5_vl": _RELEASED,
        "qwen2_5_vl_class_default": {},
    }
    checkpoint_names: ClassVar[tuple[str, ...]] = ("qwen25vl",)
