# SPDX-License-Identifier: Apache-2.0
"""Nemotron Nano VL (12B v2): images in fixed square tiles with a thumbnail, videos as Nemotron has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.families.base import Grid, only, setting
from nemo_gym_video.processors.families.nemotron import NemotronSettings, has_dynamic_resolution
from nemo_gym_video.processors.families.tiles import tile_grid
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region


@dataclass(frozen=True, slots=True)
class NemotronNanoVLSettings(NemotronSettings):
    """Settings of Nemotron Nano VL.

    An image becomes up to ``max_num_tiles`` tiles of ``force_image_size`` pixels a side, and with
    ``use_thumbnail`` one more when there is more than one. A region's grid covers the tiles without the thumbnail.
    """

    family: ClassVar[str] = "nemotron_nano_vl"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"nemotron_nano_vl": {}}

    force_image_size: int = setting(
        512, kind=int, flat=("force_image_size",), inner=("force_image_size", "image_size"), block="image", low=1,
        high=65536,
    )  # fmt: skip
    max_num_tiles: int = setting(12, kind=int, flat=("max_num_tiles",), block="image", low=1, high=1024)
    use_thumbnail: bool = setting(True, kind=bool, flat=("use_thumbnail",), block="image")

    @classmethod
    def recognises(cls, name: str, config: Mapping[str, Any]) -> bool:
        """A Nemotron checkpoint whose config does not bound the patches of an image."""
        return name.startswith(cls.checkpoint_names) and not has_dynamic_resolution(config)

    def check(self) -> None:
        """A tile must be a whole number of tokens a side."""
        # With slots the decorated class is another one, which a bare super() of Python 3.13 does not know.
        super(NemotronNanoVLSettings, self).check()
        if self.force_image_size % (self.patch_size * self.merge):
            raise ProcessorSettingsError(
                "setting 'force_image_size' must be a multiple of the pixels of a token",
                got=self.force_image_size,
                allowed=f"multiples of {self.patch_size * self.merge}",
            )

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """An image is one run, a video one a tubelet."""
        if item.kind == "video":
            return self.count_video(item, request.pruning_rate)
        return ItemCount(kind="image", regions=(self._image(item, self.max_num_tiles),))

    def _image(self, item: MediaSize, most: int) -> Region:
        side = self.force_image_size
        rows, columns = tile_grid(item.width, item.height, tile_size=(side, side), least=1, most=most)
        tiles = rows * columns + (self.use_thumbnail and rows * columns > 1)
        patches = side // self.patch_size
        return Region(
            run_lengths=(tiles * (patches // self.merge) ** 2,),
            grid=(rows * patches, columns * patches),
            processed_size=(columns * side, rows * side),
        )

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """The grid of ``target_tokens``, when just one comes out over every number of tiles allowed."""
        return only((self._image(size, most) for most in range(1, self.max_num_tiles + 1)), target_tokens)

    def engine_arguments(self) -> dict[str, object]:
        """vLLM reads tiles and videos from the checkpoint's config; exact counts need pruning off."""
        overrides = {
            "patch_size": self.patch_size,
            "downsample_ratio": self.downsample_ratio,
            "force_image_size": self.force_image_size,
            "use_thumbnail": self.use_thumbnail,
            "vision_config": self.video_arguments(),
        }
        return {
            "video_pruning_rate": 0.0,
            "mm_processor_kwargs": {"max_num_tiles": self.max_num_tiles},
            "hf_overrides": overrides,
        }
