# SPDX-License-Identifier: Apache-2.0
"""What the two Nemotron families share: markers, and videos in tubelets of one size each.

Derived from the behaviour of vLLM 0.25.1 and 0.29.0 (equal). ``merge`` x ``merge`` patches make a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.families.base import Grid, MediaTokens, ProcessorSettings, setting
from nemo_gym_video.processors.regions import ItemCount, MediaSize, Region

NEMOTRON_TOKENS = MediaTokens(
    image="<image>",
    video="<image>",
    start="<img>",
    end="</img>",
    others=("<video>", "<so_embedding>"),
    image_id=18,
    video_id=18,
    start_id=19,
    end_id=20,
)


def has_dynamic_resolution(config: Mapping[str, Any]) -> bool:
    """Whether vLLM takes the dynamic-resolution path for a checkpoint with this ``config.json``."""
    vision = config.get("vision_config")
    arguments = vision.get("args") if isinstance(vision, Mapping) else None
    return isinstance(arguments, Mapping) and arguments.get("min_num_patches") is not None


@dataclass(frozen=True, slots=True)
class NemotronSettings(ProcessorSettings):
    """Settings that both Nemotron families have.

    A video's frame is brought near ``video_target_num_patches`` patches, or to the square of
    ``video_target_img_size`` pixels a side, or, with neither, to 512 pixels a side. ``video_temporal_patch_size``
    frames make a tubelet.
    """

    tokens: ClassVar[MediaTokens] = NEMOTRON_TOKENS
    checkpoint_names: ClassVar[tuple[str, ...]] = (
        "nemotronhnanoomni",
        "nemotronhomni",
        "nemotronhnanovl",
        "nemotronnanovl",
        "llamanemotronnanovl",
    )

    image_token_id: int | None = setting(
        None,
        kind=int,
        optional=True,
        flat=("image_token_id",),
        config=("img_context_token_id",),
        low=0,
        counts=False,
    )
    patch_size: int = setting(16, kind=int, flat=("patch_size",), low=1, high=4096)
    downsample_ratio: float = setting(0.5, kind=float, flat=("downsample_ratio",), low=0, open_low=True, high=1)
    video_target_num_patches: int | None = setting(
        None,
        kind=int,
        optional=True,
        flat=("video_target_num_patches",),
        inner=("video_target_num_patches", "target_num_patches"),
        block="video",
        low=1,
    )
    video_target_img_size: int | None = setting(
        None,
        kind=int,
        optional=True,
        flat=("video_target_img_size",),
        inner=("video_target_img_size", "target_img_size"),
        block="video",
        low=1,
    )
    video_maintain_aspect_ratio: bool = setting(
        False,
        kind=bool,
        flat=("video_maintain_aspect_ratio",),
        inner=("video_maintain_aspect_ratio", "maintain_aspect_ratio"),
        block="video",
    )
    video_temporal_patch_size: int = setting(
        1,
        kind=int,
        flat=("video_temporal_patch_size",),
        inner=("video_temporal_patch_size", "temporal_patch_size"),
        block="video",
        low=1,
        high=1024,
    )

    def check(self) -> None:
        """The pixel shuffle must be whole, and at most one video target set."""
        inverse = 1 / self.downsample_ratio
        if abs(inverse - round(inverse)) > 1e-9:
            raise ProcessorSettingsError(
                "setting 'downsample_ratio' must be one over a whole number",
                got=self.downsample_ratio,
                allowed="1, 0.5, 0.25, …",
            )
        if self.video_target_num_patches is not None and self.video_target_img_size is not None:
            raise ProcessorSettingsError(
                "settings 'video_target_num_patches' and 'video_target_img_size' are both set",
                got=[self.video_target_num_patches, self.video_target_img_size],
                allowed="one of them, null for the other",
            )

    @property
    def merge(self) -> int:
        """Patches a token takes along each side."""
        return round(1 / self.downsample_ratio)

    @property
    def temporal_patch_size(self) -> int:
        """Frames in a tubelet."""
        return self.video_temporal_patch_size

    def frame_grid(self, width: int, height: int) -> Grid:
        """Patch grid (height, width) of every frame of a video of this size."""
        target, merge = self.video_target_num_patches, self.merge
        pixels = self.video_target_img_size
        if target is None:
            target = math.ceil((512 if pixels is None else pixels) / self.patch_size) ** 2
        # A video with no target at all is a square, whatever the aspect setting says.
        untargeted = self.video_target_num_patches is None and pixels is None
        if not self.video_maintain_aspect_ratio or untargeted:
            side = max(merge, int(math.sqrt(target)) // merge * merge)
            return side, side
        aspect = width / height
        tall = max(1, round(math.sqrt(target / aspect)))
        wide = max(1, round(math.sqrt(target * aspect)))
        up = (tall + -tall % merge, wide + -wide % merge)
        if up[0] * up[1] <= target:
            return up
        return max(merge, tall - tall % merge), max(merge, wide - wide % merge)

    def count_video(self, item: MediaSize, pruning_rate: float) -> ItemCount:
        """One region a tubelet; the last of an odd number of frames is padded inside the encoder."""
        height, width = self.frame_grid(item.width, item.height)
        length = (height // self.merge) * (width // self.merge)
        size = (width * self.patch_size, height * self.patch_size)
        step = self.video_temporal_patch_size
        regions = tuple(
            Region(
                run_lengths=(length,),
                grid=(height, width),
                processed_size=size,
                frames=(first, min(first + step, item.frames)),
            )
            for first in range(0, item.frames, step)
        )
        notes = () if pruning_rate == 0 else (_pruning_note(length, len(regions), pruning_rate),)
        return ItemCount(kind="video", regions=regions, notes=notes)

    def video_arguments(self) -> dict[str, object]:
        """The video settings that are set, by the name they have in the checkpoint's ``vision_config``."""
        values = {name: value for name, value in self.values().items() if name.startswith("video_")}
        return {name: value for name, value in values.items() if value is not None}


def _pruning_note(length: int, tubelets: int, rate: float) -> str:
    every = length * tubelets
    kept = max(length, int(every * (1 - rate)))
    return (
        f"video pruning at rate {rate:g}: the engine keeps {kept} of {every} tokens and puts them all in the "
        "first run; which tubelet they belong to is not predictable"
    )
