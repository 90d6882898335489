# SPDX-License-Identifier: Apache-2.0
"""InternVL: images in tiles with a thumbnail, one run an image; videos one tile and one run a frame.

Derived from the behaviour of transformers 5.24 (``GotOcr2ImageProcessorPil`` and ``InternVLProcessor``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.families.base import Grid, MediaTokens, ProcessorSettings, only, setting
from nemo_gym_video.processors.families.tiles import tile_grid
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

_SHARED_SIZES = ("image_size", "size")


@dataclass(frozen=True, slots=True)
class InternVLSettings(ProcessorSettings):
    """Settings of InternVL.

    An image becomes ``min_patches`` to ``max_patches`` tiles of ``tile_width`` x ``tile_height`` pixels, and a
    thumbnail when there is more than one; every tile takes ``image_seq_length`` tokens. A region's grid covers the
    tiles without the thumbnail.
    """

    family: ClassVar[str] = "internvl"
    tokens: ClassVar[MediaTokens] = MediaTokens(
        image="<IMG_CONTEXT>",
        video="<IMG_CONTEXT>",
        start="<img>",
        end="</img>",
        others=("<video>", "<image>"),
        image_id=151667,
        video_id=151667,
    )
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"internvl": {}}
    checkpoint_names: ClassVar[tuple[str, ...]] = ("internvl",)

    tile_width: int = setting(
        448,
        kind=int,
        flat=("tile_width",),
        inner=("size.width", "size"),
        config=("force_image_size",),
        shared=(*_SHARED_SIZES, "size.width"),
        low=1,
        high=65536,
    )
    tile_height: int = setting(
        448,
        kind=int,
        flat=("tile_height",),
        inner=("size.height", "size"),
        config=("force_image_size",),
        shared=(*_SHARED_SIZES, "size.height"),
        low=1,
        high=65536,
    )
    min_patches: int = setting(
        1,
        kind=int,
        flat=("min_patches", "min_dynamic_patch"),
        inner=("min_patches",),
        block="image",
        low=1,
        high=1024,
    )
    max_patches: int = setting(
        12,
        kind=int,
        flat=("max_patches", "max_dynamic_patch"),
        inner=("max_patches",),
        block="image",
        low=1,
        high=1024,
    )
    image_seq_length: int = setting(256, kind=int, flat=("image_seq_length",), low=1, high=65536)
    downsample_ratio: float = setting(0.5, kind=float, flat=("downsample_ratio",), low=0, open_low=True, high=1)

    def check(self) -> None:
        """The bounds of the tiles must be in order."""
        if self.max_patches < self.min_patches:
            raise ProcessorSettingsError(
                "setting 'max_patches' is below 'min_patches'",
                got=[self.min_patches, self.max_patches],
                allowed="min <= max",
            )

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """An image is one run, a video one a frame."""
        if item.kind == "video":
            return self._video(item)
        return ItemCount(kind="image", regions=(self._image(item, self.max_patches),))

    def _region(self, rows: int, columns: int, *, tiles: int, frames: tuple[int, int] = (0, 1)) -> Region:
        # A tile's features form a square before the pixel shuffle halves its sides.
        side = round(math.sqrt(self.image_seq_length) / self.downsample_ratio)
        return Region(
            run_lengths=(tiles * self.image_seq_length,),
            grid=(rows * side, columns * side),
            processed_size=(columns * self.tile_width, rows * self.tile_height),
            frames=frames,
        )

    def _image(self, item: MediaSize, most: int) -> Region:
        size = (self.tile_width, self.tile_height)
        rows, columns = tile_grid(item.width, item.height, tile_size=size, least=self.min_patches, most=most)
        return self._region(rows, columns, tiles=rows * columns + (rows * columns > 1))

    def _video(self, item: MediaSize) -> ItemCount:
        regions = tuple(self._region(1, 1, tiles=1, frames=(frame, frame + 1)) for frame in range(item.frames))
        return ItemCount(kind="video", regions=regions)

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """The grid of ``target_tokens``, when just one comes out over every number of tiles allowed."""
        limits = range(self.min_patches, self.max_patches + 1)
        return only((self._image(size, most) for most in limits), target_tokens)

    def engine_arguments(self) -> dict[str, object]:
        """vLLM hands the tile bounds to the processor."""
        return {"mm_processor_kwargs": {"min_patches": self.min_patches, "max_patches": self.max_patches}}
