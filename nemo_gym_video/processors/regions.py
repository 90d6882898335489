# SPDX-License-Identifier: Apache-2.0
"""What a count is asked for and what it answers: small frozen values shared by every processor family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MediaKind = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class MediaSize:
    """One logical media item of a model call, as the processor sees it.

    ``width`` and ``height`` are the displayed size in pixels; ``frames`` is the number of sampled frames that
    reach the processor (1 for an image).

    >>> from nemo_gym_video import MediaSize
    >>> MediaSize("video", 1920, 1080, frames=64).frames
    64
    """

    kind: MediaKind
    width: int
    height: int
    frames: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRequest:
    """All media of one model call, in prompt order, with the engine state that counts depend on.

    ``text_tokens`` is the number of text tokens the engine's processor counts (0 on vLLM's served paths);
    ``processor_cache`` says whether the engine keeps processed items, so that earlier counts may be reused;
    ``pruning_rate`` is the engine's EVS rate (0 = off).

    >>> from nemo_gym_video import CountRequest, MediaSize
    >>> CountRequest(items=(MediaSize("image", 640, 480),), max_model_len=32768).text_tokens
    0
    """

    items: tuple[MediaSize, ...]
    max_model_len: int | None = None
    text_tokens: int = 0
    processor_cache: bool = False
    pruning_rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What becomes one contiguous stretch of placeholders: an image, or one tubelet of a video.

    ``run_lengths`` are the placeholder counts of its runs in order (more than one for families that split an
    image); ``grid`` is (height, width) in patches; ``processed_size`` is (width, height) in pixels; ``frames``
    is the half-open range of sampled-frame positions it covers.
    """

    run_lengths: tuple[int, ...]
    grid: tuple[int, int] | None
    processed_size: tuple[int, int] | None
    frames: tuple[int, int] = (0, 1)

    @property
    def total(self) -> int:
        """Placeholder tokens of the region."""
        return sum(self.run_lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCount:
    """The regions of one item. ``notes`` name what cannot be predicted (pruning, cache hits), never guessed."""

    kind: MediaKind
    regions: tuple[Region, ...]
    notes: tuple[str, ...] = ()

    @property
    def run_lengths(self) -> tuple[int, ...]:
        """All run lengths of the item, in token order."""
        return tuple(length for region in self.regions for length in region.run_lengths)

    @property
    def total(self) -> int:
        """Placeholder tokens of the item."""
        return sum(region.total for region in self.regions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """The prediction for one model call. ``adjacent_regions_can_fuse``: two items may form one run."""

    items: tuple[ItemCount, ...]
    fingerprint: str
    adjacent_regions_can_fuse: bool = False

    @property
    def total(self) -> int:
        """Placeholder tokens of the call."""
        return sum(item.total for item in self.items)
