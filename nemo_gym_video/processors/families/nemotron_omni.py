# SPDX-License-Identifier: Apache-2.0
"""Nemotron Omni: images of dynamic resolution under one joint budget, videos in tubelets.

Derived from the behaviour of vLLM 0.25.1 and 0.29.0 (equal) and, with ``joint_image_budget`` off, of transformers
5.24's own processor. Budgets are in patches of ``patch_size`` pixels; ``merge`` x ``merge`` patches make a token.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.processors.families.base import Grid, at_item, setting
from nemo_gym_video.processors.families.nemotron import NemotronSettings, has_dynamic_resolution
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

# The engine keeps four tokens free for what wraps the images, and gives up balancing them after ten rounds.
_RESERVED_TOKENS = 4
_ROUNDS = 10
# More patches than any checked size has.
_BOUNDLESS = 2**62

_CACHE_NOTES = ("processor cache on: an image seen in an earlier call keeps the count of that call",)
_TRANSFORMERS_NAMES = ("nemotronhomni",)
_RELEASED = {
    "min_num_patches": 1024,
    "max_num_patches": 13312,
    "video_target_num_patches": 1024,
    "video_maintain_aspect_ratio": True,
    "video_temporal_patch_size": 2,
}


@dataclass(frozen=True, slots=True)
class NemotronOmniSettings(NemotronSettings):
    """Settings of Nemotron Omni.

    ``min_num_patches`` and ``max_num_patches`` bound one image (0: no upper bound). ``max_model_len`` is used for
    a request that names none. ``joint_image_budget``: all images of a call share the context length, as vLLM has
    it; off, each image gets it all, as transformers has it.
    """

    family: ClassVar[str] = "nemotron_omni"
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "nemotron_omni": _RELEASED,
        "nemotron_omni_transformers": {**_RELEASED, "joint_image_budget": False},
    }

    min_num_patches: int = setting(1024, kind=int, flat=("min_num_patches",), block="image", low=1)
    max_num_patches: int = setting(0, kind=int, flat=("max_num_patches",), block="image", low=0)
    max_model_len: int = setting(16384, kind=int, flat=("max_model_len",), low=1)
    joint_image_budget: bool = setting(True, kind=bool, flat=("joint_image_budget",), block="image")

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
        """The bounds of an image must be in order."""
        # With slots the decorated class is another one, which a bare super() of Python 3.13 does not know.
        super(NemotronOmniSettings, self).check()
        if 0 < self.max_num_patches < self.min_num_patches:
            raise ProcessorSettingsError(
                "setting 'max_num_patches' is below 'min_num_patches'",
                got=[self.min_num_patches, self.max_num_patches],
                allowed="min <= max, or max 0 for no bound",
            )

    def count_items(self, request: CountRequest) -> tuple[ItemCount, ...]:
        """Images share the budget; a video depends on nothing but itself."""
        grids = self._image_grids(request)
        return tuple(
            self._image(grids[index], request) if item.kind == "image" else self.count_item(item, request)
            for index, item in enumerate(request.items)
        )

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """One item as if it were alone in the call."""
        if item.kind == "video":
            return self.count_video(item, request.pruning_rate)
        return self.count_items(dataclasses.replace(request, items=(item,)))[0]

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

    def _image_grids(self, request: CountRequest) -> dict[int, Grid]:
        """The grid of every image by its place in the call, scaled down until they fit together."""
        images = {index: item for index, item in enumerate(request.items) if item.kind == "image"}
        total_budget = self._context_budget(len(images), request)
        ceiling = min(total_budget, self.max_num_patches) if self.max_num_patches else total_budget
        budgets = dict.fromkeys(images, max(ceiling, self.min_num_patches))
        grids: dict[int, Grid] = {}
        for _ in range(_ROUNDS if self.joint_image_budget else 1):
            for index, size in images.items():
                with at_item(index):
                    grids[index] = self.image_grid(size, budgets[index])
            areas = {index: height * width for index, (height, width) in grids.items()}
            total = sum(areas.values())
            if total <= total_budget:
                break
            scale = total_budget / total
            smaller = {index: max(self.min_num_patches, int(area * scale)) for index, area in areas.items()}
            if all(smaller[index] >= budgets[index] for index in images):
                smaller = dict.fromkeys(images, self.min_num_patches)
            budgets = smaller
        return grids

    def _image(self, grid: Grid, request: CountRequest) -> ItemCount:
        height, width = grid
        region = Region(
            run_lengths=(height * width // self.merge**2,),
            grid=grid,
            processed_size=(width * self.patch_size, height * self.patch_size),
        )
        cached = request.processor_cache and self.joint_image_budget
        return ItemCount(kind="image", regions=(region,), notes=_CACHE_NOTES if cached else ())

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

    def engine_arguments(self) -> dict[str, object]:
        """vLLM reads the rule from the checkpoint's config; exact counts need the cache and pruning off."""
        bounds = {"min_num_patches": self.min_num_patches, "max_num_patches": self.max_num_patches}
        return {
            "max_model_len": self.max_model_len,
            "mm_processor_cache_gb": 0,
            "video_pruning_rate": 0.0,
            "hf_overrides": {
                "patch_size": self.patch_size,
                "downsample_ratio": self.downsample_ratio,
                "vision_config": {"args": bounds, **self.video_arguments()},
            },
        }
