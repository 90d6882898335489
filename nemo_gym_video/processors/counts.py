# SPDX-License-Identifier: Apache-2.0
"""Predicts the placeholder tokens of one model call from sizes and frame counts; no pixels, no torch."""

from __future__ import annotations

import dataclasses

from nemo_gym_video.errors import RowError
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.families.base import LARGEST, Grid, ProcessorSettings, check_size
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, RequestCount

__all__ = ["FAMILIES", "count_request", "grid_for_count"]


def count_request(settings: ProcessorSettings, request: CountRequest) -> RequestCount:
    """The regions of every item of one model call, in prompt order, with the settings' fingerprint.

    Raises:
        RowError: an item has a size or frame count that the processor refuses, or a request field is out of range.

    >>> from nemo_gym_video import CountRequest, MediaSize, count_request, load_settings
    >>> request = CountRequest(items=(MediaSize("video", 1920, 1080, frames=64),), max_model_len=16384)
    >>> count_request(load_settings("nemotron_omni"), request).total
    8064
    """
    _check_request(request)
    items = settings.count_items(request)
    if request.pruning_rate > 0:
        items = tuple(_with_pruning_note(item, request.pruning_rate) for item in items)
    return RequestCount(
        items=items,
        fingerprint=settings.fingerprint,
        adjacent_regions_can_fuse=settings.adjacent_regions_can_fuse,
    )


def grid_for_count(
    settings: ProcessorSettings, size: MediaSize, target_tokens: int
) -> tuple[Grid, tuple[int, int]] | None:
    """The one patch grid (height, width) and processed size (width, height) of an image with ``target_tokens``.

    ``None`` when no budget of the family's own algorithm gives that count, when more than one grid does, or when
    the processor refuses the image: a grid is never guessed.
    """
    check_size(size)
    if size.kind != "image" or target_tokens < 1:
        return None
    try:
        return settings.grid_for_count(size, target_tokens)
    except RowError:
        return None


def _with_pruning_note(item: ItemCount, rate: float) -> ItemCount:
    """A family that knows what pruning leaves has said so itself."""
    if item.kind != "video" or item.notes:
        return item
    note = f"video pruning at rate {rate:g}: the engine drops tokens; these counts are those before pruning"
    return dataclasses.replace(item, notes=(note,))


def _check_request(request: CountRequest) -> None:
    for index, item in enumerate(request.items):
        check_size(item, index)
    length = request.max_model_len
    if length is not None and (type(length) is not int or not 1 <= length <= LARGEST):
        raise RowError("max_model_len does not fit", got=length, allowed=f"an integer from 1 to {LARGEST}")
    if type(request.text_tokens) is not int or not 0 <= request.text_tokens <= LARGEST:
        raise RowError("text_tokens does not fit", got=request.text_tokens, allowed="an integer >= 0")
    rate = request.pruning_rate
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise RowError("pruning_rate does not fit", got=rate, allowed="a number >= 0 and < 1")
