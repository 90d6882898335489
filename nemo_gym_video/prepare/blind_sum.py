# SPDX-License-Identifier: Apache-2.0
"""What policies that do not look would earn on the prepared rows, as a running sum."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym_video.tasks.tracking.blind import answered_blind, blind_rewards
from nemo_gym_video.tasks.tracking.track_row import TrackRow


@dataclass(slots=True)
class BlindScores:
    """Sums of rewards by policy; ``answered`` counts the rows that a policy answers fully (tracking only)."""

    rows: int = 0
    questions: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)
    letters: Counter[str] = field(default_factory=Counter)
    answered: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Score every policy on one row."""
        self.rows += 1
        if "expected_answer" in row:
            self.questions += 1
            self.letters[row["expected_answer"]] += 1
            return
        rewards = blind_rewards(TrackRow.from_row(row))
        for name, reward in rewards.items():
            self.sums[name] += reward
            self.counts[name] += 1
        self.answered += any(reward >= 1 - 1e-9 for reward in rewards.values())

    def to_json(self) -> dict[str, Any]:
        """Mean reward by policy, and how many tracking rows one of them answers fully."""
        means = {name: round(self.sums[name] / self.counts[name], 6) for name in sorted(self.counts)}
        if self.questions:
            means["first option"] = round(self.letters["A"] / self.questions, 6)
            letter, count = min(self.letters.items(), key=lambda pair: (-pair[1], pair[0]))
            means[f"always {letter}"] = round(count / self.questions, 6)
        return {"mean_reward": means, "rows_answered_fully": self.answered}


def gets_full_reward(row: Mapping[str, Any]) -> str | None:
    """The policy that gets the full reward on this tracking row without looking; None for a question.

    A single multiple-choice row says nothing about a policy: some letter is always right.
    """
    return None if "expected_answer" in row else answered_blind(TrackRow.from_row(row))
