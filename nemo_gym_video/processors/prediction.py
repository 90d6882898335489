# SPDX-License-Identifier: Apache-2.0
"""Predicts regions over the model calls of a rollout, where the media of earlier calls shares the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.regions import CountRequest, MediaSize, Region


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """What counts depend on beside the media: see ``CountRequest``."""

    max_model_len: int | None = None
    text_tokens: int = 0
    processor_cache: bool = False
    pruning_rate: float = 0.0

    def request(self, sizes: Sequence[MediaSize]) -> CountRequest:
        """The count request of one model call with this media."""
        return CountRequest(
            items=tuple(sizes),
            max_model_len=self.max_model_len,
            text_tokens=self.text_tokens,
            processor_cache=self.processor_cache,
            pruning_rate=self.pruning_rate,
        )


def predict_items(
    items: Sequence[Sequence[MediaSize]], turns: Sequence[int], settings: ProcessorSettings, state: CallState
) -> list[tuple[Region, ...]]:
    """Regions of every item, as counted in the model call ``turns[i]`` that first sees it.

    An item may be several media (a video sent as single images); its regions then cover one frame each. With the
    engine's processor cache off, a call processes the media of all turns so far together; with it on, only the
    call's own (equal media inside one call is still counted for each use).
    """
    predicted: list[tuple[Region, ...]] = [()] * len(items)
    for turn in sorted(set(turns)):
        seen = [
            place
            for place, first in enumerate(turns)
            if first == turn or (first < turn and not state.processor_cache)
        ]
        counts = iter(count_request(settings, state.request([size for i in seen for size in items[i]])).items)
        for place in seen:
            regions = [next(counts).regions for _ in items[place]]
            if turns[place] == turn:
                predicted[place] = _joined(regions)
    return predicted


def _joined(parts: list[tuple[Region, ...]]) -> tuple[Region, ...]:
    if len(parts) == 1:
        return parts[0]
    return tuple(
        Region(run_lengths=region.run_lengths, grid=region.grid, processed_size=region.processed_size,
               frames=(place, place + 1))
        for place, regions in enumerate(parts)
        for region in regions
    )  # fmt: skip
