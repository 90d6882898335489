# SPDX-License-Identifier: Apache-2.0
"""What a result says about its media, in nemo-gym's words: assets, and per model call their occurrences."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nemo_gym_video.gym.emit import Emission, EmittedItem
from nemo_gym_video.gym.episode import Episode


class MediaRecord:
    """The media of one rollout, turn by turn, and what the token ids say about them."""

    def __init__(self, emission: Emission, seed: Emission) -> None:
        """Start with the row's own media and the opening observation's, which the first turn introduces."""
        self.mode = emission.mode if emission.items else seed.mode
        self.turns: list[tuple[EmittedItem, ...]] = [(*emission.items, *seed.items)]
        self.untrusted: str | None = None

    def add_turn(self, emission: Emission) -> None:
        """The media of an observation, which the next turn introduces."""
        self.turns.append(emission.items)

    def report(self, episode: Episode) -> dict[str, Any]:
        """The result's media fields."""
        return {
            "media_mode": self.mode,
            "media_assets": self._assets(),
            "model_call_metadata": [self._call(number, episode) for number in range(len(episode.calls))],
        }

    def _assets(self) -> dict[str, dict[str, Any]]:
        return {item.media_id: _asset(item) for items in self.turns for item in items}

    def _call(self, number: int, episode: Episode) -> dict[str, Any]:
        items = self.turns[number] if number < len(self.turns) else ()
        call_id = episode.calls[number].model_call_id
        seen: Counter[str] = Counter()
        occurrences = []
        for item in items:
            occurrences.append({
                "media_id": item.media_id,
                "occurrence_ordinal": seen[item.media_id],
                "model_call_id": call_id,
            })  # fmt: skip
            seen[item.media_id] += 1
        return {
            "turn_id": number + 1,
            "model_call_id": call_id,
            "media_ids": [item.media_id for item in items],
            "media_occurrences": occurrences,
        }


def _asset(item: EmittedItem) -> dict[str, Any]:
    return {
        "media_id": item.media_id,
        "content_digest": item.media_id,
        "kind": item.kind,
        "source": item.source,
        "form": item.form,
        "frames": item.frames,
    }
