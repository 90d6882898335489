# SPDX-License-Identifier: Apache-2.0
"""Gemma 4: every image and every video frame is scaled into its own budget of soft tokens, one run each.

Derived from the behaviour of transformers 5.24 (``Gemma4ImageProcessorPil`` and the video processor).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_gym_video.errors import RowError
from nemo_gym_video.processors.families.base import Grid, MediaTokens, ProcessorSettings, only, setting
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

SOFT_TOKENS = (70, 140, 280, 560, 1120)
# The unified models have another image processor, so names are taken whole.
_NAMES = ("gemma4", "gemma4forconditionalgeneration", "gemma4processor")


@dataclass(frozen=True, slots=True)
class Gemma4Settings(ProcessorSettings):
    """Settings of Gemma 4.

    An image has at most ``max_soft_tokens`` tokens and a video frame ``video_max_soft_tokens``;
    ``pooling_kernel_size`` patches of ``patch_size`` pixels a side make one token.
    """

    family: ClassVar[str] = "gemma4"
    tokens: ClassVar[MediaTokens] = MediaTokens(
        image="<|image|>",
        video="<|video|>",
        start="<|image>",
        end="<image|>",
        image_id=258880,
        video_id=258884,
        start_id=255999,
        end_id=258882,
    )
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"gemma4": {}}
    checkpoint_names: ClassVar[tuple[str, ...]] = _NAMES

    patch_size: int = setting(16, kind=int, flat=("patch_size",), low=1, high=4096)
    pooling_kernel_size: int = setting(3, kind=int, flat=("pooling_kernel_size",), low=1, high=64)
    max_soft_tokens: int = setting(
        280, kind=int, flat=("image_max_soft_tokens",), inner=("max_soft_tokens",), shared=("max_soft_tokens",),
        block="image", choices=SOFT_TOKENS,
    )  # fmt: skip
    video_max_soft_tokens: int = setting(
        70, kind=int, flat=("video_max_soft_tokens",), inner=("max_soft_tokens",), shared=("max_soft_tokens",),
        block="video", choices=SOFT_TOKENS,
    )  # fmt: skip

    @classmethod
    def recognises(cls, name: str, config: Mapping[str, Any]) -> bool:
        """Only the names of Gemma 4 itself."""
        return name in cls.checkpoint_names

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """An image is one run, a video one a frame."""
        return self._image(item) if item.kind == "image" else self._video(item)

    def _image(self, item: MediaSize) -> ItemCount:
        return ItemCount(kind="image", regions=(self._region(self._blocks(item, self.max_soft_tokens)),))

    def _video(self, item: MediaSize) -> ItemCount:
        blocks = self._blocks(item, self.video_max_soft_tokens)
        regions = tuple(self._region(blocks, (frame, frame + 1)) for frame in range(item.frames))
        return ItemCount(kind="video", regions=regions)

    def _region(self, blocks: Grid, frames: tuple[int, int] = (0, 1)) -> Region:
        rows, columns = blocks
        height, width = rows * self.pooling_kernel_size, columns * self.pooling_kernel_size
        return Region(
            run_lengths=(rows * columns,),
            grid=(height, width),
            processed_size=(width * self.patch_size, height * self.patch_size),
            frames=frames,
        )

    def _blocks(self, item: MediaSize, budget: int) -> Grid:
        """Rows and columns of tokens, each of ``pooling_kernel_size * patch_size`` pixels a side."""
        block = self.pooling_kernel_size * self.patch_size
        pixels = budget * block**2
        factor = math.sqrt(pixels / (item.height * item.width))
        rows, columns = math.floor(factor * item.height / block), math.floor(factor * item.width / block)
        # A side too short for one token gets one, and the other side the whole aspect ratio.
        if rows == 0 and columns > 0:
            rows, columns = 1, min(item.width // item.height, budget)
        elif columns == 0 and rows > 0:
            rows, columns = min(item.height // item.width, budget), 1
        if not 0 < rows * columns <= budget:
            raise RowError("the processor refuses a size this elongated", got=[item.width, item.height])
        return rows, columns

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """The grid of ``target_tokens``, when just one comes out over every supported budget."""
        regions = []
        for budget in SOFT_TOKENS:
            with contextlib.suppress(RowError):
                regions.append(self._region(self._blocks(size, budget)))
        return only(regions, target_tokens)

    def engine_arguments(self) -> dict[str, object]:
        """vLLM hands the budget of an image to the processor."""
        return {"mm_processor_kwargs": {"max_soft_tokens": self.max_soft_tokens}}
