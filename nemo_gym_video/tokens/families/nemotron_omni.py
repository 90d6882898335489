# SPDX-License-Identifier: Apache-2.0
"""Nemotron Omni: images of dynamic resolution under one joint budget, videos in tubelets.

Derived from the behaviour of vLLM 0.25.1 and 0.29.0 (equal) and, with ``joint_image_budget`` off, of transformers
5.24's own processor. Budgets are in patches of ``patch_size`` pixels; ``merge`` x ``merge`` patches make a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.tokens.families.base import Grid, MediaTokens, ProcessorSettings, setting
from nemo_gym_video.tokens.types import CountRequest, ItemCount, MediaSize, Region

# The engine keeps four tokens free for what wraps the images, and gives up balancing them after ten rounds.
_RESERVED_TOKENS = 4
_ROUNDS = 10
# More patches than any checked size has.
_BOUNDLESS = 2**62

# Both Nemotron families; which of them a checkpoint is, its vision_config.args decide.
NEMOTRON_NAMES = ("nemotronhnanoomni", "nemotronhomni", "nemotronhnanovl", "nemotronnanovl", "llamanemotronnanovl")
_TRANSFORMERS_NAMES = ("nemotronhomni",)

_RELEASED = {
    "min_num_patches": 1024,
    "max_num_patches": 13312,
    "video_target_num_patches": 1024,
    "video_maintain_aspect_ratio": True,
    "video_temporal_patch_size": 2,
}


def has_dynamic_resolution(config: Mapping[str, Any]) -> bool:
    """Whether vLLM takes the dynamic-resolution path for a checkpoint with this ``config.json``."""
    vision = config.get("vision_config")
    arguments = vision.get("args") if isinstance(vision, Mapping) else None
    return isinstance(arguments, Mapping) and arguments.get("min_num_patches") is not None


@dataclass(frozen=True, slots=True)
class NemotronOmniSettings(ProcessorSettings):
    """Settings of Nemotron Omni.

    ``min_num_patches`` and ``max_num_patches`` bound one image (0: no upper bound). A video's frame is brought
    near ``video_target_num_patches`` patches (or to the square of ``video_target_img_size`` pixels a side, or,
    with neither, to 512 pixels a side); ``video_temporal_patch_size`` frames make a tubelet. ``max_model_len`` is used
    for a request that names none. ``joint_image_budget``: all images of a call share the context length, as vLLM
    has it; off, each image gets it all, as transformers has it.
    """

    family: ClassVar[str] = "nemotron_omni"
    tokens: ClassVar[MediaTokens] = MediaTokens(
        image="<image>", video="<image>", start="<img>", end="</img>", others=("<video>", "<so_embedding>"),
        image_id=18, video_id=18, start_id=19, end_id=20,
    )  # fmt: skip
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "nemotron_omni": _RELEASED,
        "nemotron_omni_transformers": {**_RELEASED, "joint_image_budget": False},
    }

    checkpoint_names: ClassVar[tuple[str, ...]] = NEMOTRON_NAMES

    patch_size: int = setting(16, kind=int, flat=("patch_size",), low=1, high=4096)
    downsample_ratio: float = setting(0.5, kind=float, flat=("downsample_ratio",), low=0, open_low=True, high=1)
    min_num_patches: int = setting(1024, kind=int, flat=("min_num_patches",), block="image", low=1)
    max_num_patches: int = setting(0, kind=int, flat=("max_num_patches",), block="image", low=0)
    max_model_len: int = setting(16384, kind=int, flat=("max_model_len",), low=1)
    joint_image_budget: bool = setting(
        True, kind=bool, flat=("joint_image_budget",), inner=("joint_budget", "joint_image_budget"), block="image"
    )
    video_target_num_patches: int | None = setting(
        None, kind=int, optional=True, flat=("video_target_num_patches",),
        inner=("video_target_num_patches", "target_num_patches"), block="video", low=1,
    )  # fmt: skip
    video_target_img_size: int | None = setting(
        None, kind=int, optional=True, flat=("video_target_img_size",),
        inner=("video_target_img_size", "target_img_size"), block="video", low=1,
    )  # fmt: skip
    video_maintain_aspect_ratio: bool = setting(
        False, kind=bool, flat=("video_maintain_aspect_ratio",),
        inner=("video_maintain_aspect_ratio", "maintain_aspect_ratio"), block="video",
    )  # fmt: skip
    video_temporal_patch_size: int = setting(
        1, kind=int, flat=("video_temporal_patch_size",),
        inner=("video_temporal_patch_size", "temporal_patch_size"), block="video", low=1, high=1024,
    )  # fmt: skip

    @classmethod
    def recognises(cls, name: str, config: Mapping[str, Any]) -> bool:
        """A Nemotron checkpoint is of this family when its config bounds the patches of an image."""
        return name.startswith(_TRANSFORMERS_NAMES) or (
            name.startswith(cls.checkpoint_names) and has_dynamic_resolution(config)
        )

    @classmethod
    def checkpoint_defaults(cls, names: tuple[str, ...]) -> Mapping[str, object]:
        """The processor class of transformers has the released values as its own defaults."""
        return _RELEASED if any(name.startswith(_TRANSFORMERS_NAMES) for name in names) else {}

    def check(self) -> None:
        """The pixel shuffle must be whole, the bounds in order, and at most one video target set."""
        inverse = 1 / self.downsample_ratio
        if abs(inverse - round(inverse)) > 1e-9:
            raise ProcessorSettingsError("setting 'downsample_ratio' must be one over a whole number",
                                         got=self.downsample_ratio, allowed="1, 0.5, 0.25, …")  # fmt: skip
        if 0 < self.max_num_patches < self.min_num_patches:
            raise ProcessorSettingsError(
                "setting 'max_num_patches' is below 'min_num_patches'",
                got=[self.min_num_patches, self.max_num_patches], allowed="min <= max, or max 0 for no bound",
            )  # fmt: skip
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

    def count_items(self, request: CountRequest) -> tuple[ItemCount, ...]:
        """Images share the budget; a video depends on nothing but itself."""
        images = tuple(item for item in request.items if item.kind == "image")
        grids = iter(self._image_grids(images, request))
        notes = self._image_notes(images, request)
        return tuple(
            self._image(next(grids), notes) if item.kind == "image" else self._video(item, request.pruning_rate)
            for item in request.items
        )

    # Images

    def base_grid(self, size: MediaSize, budget: int) -> Grid:
        """Grid (height, width) scaled down into ``budget`` patches, before floor and parity."""
        # round() is half-to-even on purpose: 512 px are 32 patches, 528 px are 34.
        height, width = round(size.height / self.patch_size + 0.5), round(size.width / self.patch_size + 0.5)
        factor = min(math.sqrt(budget / (height * width)), 1.0)
        return math.floor(factor * height), math.floor(factor * width)

    def image_grid(self, size: MediaSize, budget: int) -> Grid:
        """Patch grid (height, width) of one image whose budget is ``budget`` patches."""
        height, width = self._floored(*self.base_grid(size, budget), budget)
        height = self._whole(height, width, budget)
        return height, self._whole(width, height, budget)

    def _floored(self, height: int, width: int, budget: int) -> Grid:
        if height * width == 0:
            raise RowError("image is too elongated: the engine's rule gives it a side of no patches")
        if budget > self.min_num_patches and height * width < self.min_num_patches:
            factor = math.sqrt(self.min_num_patches / (height * width))
            return math.ceil(factor * height), math.ceil(factor * width)
        return height, width

    def _whole(self, side: int, other: int, budget: int) -> int:
        excess = side % self.merge
        if not excess:
            return side
        up = side + self.merge - excess
        return up if up * other <= budget else max(self.merge, side - excess)

    def _context_budget(self, images: int, request: CountRequest) -> int:
        length = self.max_model_len if request.max_model_len is None else request.max_model_len
        text = request.text_tokens if self.joint_image_budget else 0
        return max((length - text - _RESERVED_TOKENS) * self.merge**2, self.min_num_patches * images)

    def _image_grids(self, images: tuple[MediaSize, ...], request: CountRequest) -> list[Grid]:
        total_budget = self._context_budget(len(images), request)
        ceiling = min(total_budget, self.max_num_patches) if self.max_num_patches else total_budget
        budgets = [max(ceiling, self.min_num_patches)] * len(images)
        grids: list[Grid] = []
        for _ in range(_ROUNDS if self.joint_image_budget else 1):
            grids = [self.image_grid(size, budget) for size, budget in zip(images, budgets, strict=True)]
            total = sum(height * width for height, width in grids)
            if total <= total_budget:
                break
            scale = total_budget / total
            smaller = [max(self.min_num_patches, int(width * height * scale)) for height, width in grids]
            if all(new >= old for new, old in zip(smaller, budgets, strict=True)):
                smaller = [self.min_num_patches] * len(images)
            budgets = smaller
        return grids

    def _image_notes(self, images: tuple[MediaSize, ...], request: CountRequest) -> tuple[str, ...]:
        if request.processor_cache and self.joint_image_budget and images:
            return ("processor cache on: an image seen in an earlier call keeps the count of that call",)
        return ()

    def _image(self, grid: Grid, notes: tuple[str, ...]) -> ItemCount:
        height, width = grid
        region = Region(
            run_lengths=(height * width // self.merge**2,),
            grid=grid,
            processed_size=(width * self.patch_size, height * self.patch_size),
        )
        return ItemCount(kind="image", regions=(region,), notes=notes)

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """The grid of an image with ``target_tokens``, when just one comes out over every possible budget.

        The scaled grid grows with the budget, so the budgets are halved until it is constant, and halves that
        cannot hold the count are dropped: some hundred evaluations, whatever the size.
        """
        found: set[Grid] = set()
        area = target_tokens * self.merge**2
        pending = [(self.min_num_patches, self._largest_useful_budget(size))]
        while pending:
            low, high = pending.pop()
            small, large = self.base_grid(size, low), self.base_grid(size, high)
            if small == large:
                found.update(
                    grid for grid in self._grids_between(size, small, low, high) if math.prod(grid) == area
                )
            elif self._may_hold(area, small, large):
                middle = (low + high) // 2
                pending += [(low, middle), (middle + 1, high)]
            if len(found) > 1:
                return None
        if not found:
            return None
        height, width = found.pop()
        return (height, width), (width * self.patch_size, height * self.patch_size)

    def _largest_useful_budget(self, size: MediaSize) -> int:
        """A budget from which on the grid no longer changes, or the configured maximum."""
        full = self.base_grid(size, _BOUNDLESS)
        height, width = self._floored(*full, _BOUNDLESS)
        useful = max(math.prod(full), (height + self.merge) * (width + self.merge), self.min_num_patches)
        return min(useful, self.max_num_patches) if self.max_num_patches else useful

    def _may_hold(self, area: int, small: Grid, large: Grid) -> bool:
        if math.prod(large) == 0:
            return False
        if math.prod(small) < self.min_num_patches:
            return True
        slack = self.merge - 1
        low = max(small[0] - slack, 1) * max(small[1] - slack, 1)
        return low <= area <= (large[0] + slack) * (large[1] + slack)

    def _grids_between(self, size: MediaSize, base: Grid, low: int, high: int) -> set[Grid]:
        """All grids for the budgets ``low`` to ``high``, over which the scaled grid is ``base``."""
        if math.prod(base) == 0:
            return set()
        # Within such a stretch the result changes only where rounding a side up begins to fit.
        turns = {low, min(low + 1, high), high}
        height, width = self._floored(*base, high)
        for tall in {height - height % self.merge, height + -height % self.merge, self.merge}:
            for wide in {width, width + -width % self.merge}:
                turns.add(tall * wide)
        return {self.image_grid(size, turn) for turn in turns if low <= turn <= high}

    # Videos

    def frame_grid(self, width: int, height: int) -> Grid:
        """Patch grid (height, width) of every frame of a video of this size."""
        target = self.video_target_num_patches
        if target is None:
            pixels = 512 if self.video_target_img_size is None else self.video_target_img_size
            target = math.ceil(pixels / self.patch_size) ** 2
        # A video with no target at all is a square, whatever the aspect setting says.
        free = self.video_target_num_patches is None and self.video_target_img_size is None
        if not self.video_maintain_aspect_ratio or free:
            side = max(self.merge, int(math.sqrt(target)) // self.merge * self.merge)
            return side, side
        aspect = width / height
        tall = max(1, round(math.sqrt(target / aspect)))
        wide = max(1, round(math.sqrt(target * aspect)))
        up = (tall + -tall % self.merge, wide + -wide % self.merge)
        if up[0] * up[1] <= target:
            return up
        return max(self.merge, tall - tall % self.merge), max(self.merge, wide - wide % self.merge)

    def _video(self, item: MediaSize, pruning_rate: float) -> ItemCount:
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
        notes: tuple[str, ...] = ()
        if pruning_rate > 0:
            every = length * len(regions)
            kept = max(length, int(every * (1 - pruning_rate)))
            notes = (
                f"video pruning at rate {pruning_rate:g}: the engine keeps {kept} of {every} tokens "
                "and puts them all in the first run; which tubelet they belong to is not predictable",
            )
        return ItemCount(kind="video", regions=regions, notes=notes)

    def engine_arguments(self) -> dict[str, object]:
        """vLLM reads the rule from the checkpoint's config; exact counts need the cache and pruning off."""
        video = {
            "video_target_num_patches": self.video_target_num_patches,
            "video_target_img_size": self.video_target_img_size,
            "video_maintain_aspect_ratio": self.video_maintain_aspect_ratio,
            "video_temporal_patch_size": self.video_temporal_patch_size,
        }
        arguments = {"min_num_patches": self.min_num_patches, "max_num_patches": self.max_num_patches}
        vision = {"args": arguments} | {name: value for name, value in video.items() if value is not None}
        return {
            "max_model_len": self.max_model_len,
            "mm_processor_cache_gb": 0,
            "video_pruning_rate": 0.0,
            "hf_overrides": {
                "patch_size": self.patch_size,
                "downsample_ratio": self.downsample_ratio,
                "vision_config": vision,
            },
        }
