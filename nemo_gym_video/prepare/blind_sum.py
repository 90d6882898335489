# SPDX-License-Identifier: Apache-2.0
"""What policies that do not look would earn on the prepared rows, as a running sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym_video.tasks.blind_policies import BlindSum, blind_rewards_of, solved_blind
from nemo_gym_video.tasks.registry import task_of_row


@dataclass(slots=True)
class BlindScores:
    """Sums of rewards by policy; ``answered`` counts the rows that a policy answers fully (tracking only)."""

    rows: int = 0
    total: BlindSum = field(default_factory=BlindSum)
    answered: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Score every policy on one row."""
        self.rows += 1
        task = task_of_row(row)
        rewards = blind_rewards_of(task, task.read_row(row))
        self.total.add(rewards)
        self.answered += bool(solved_blind(task, rewards))

    def to_json(self) -> dict[str, Any]:
        """Mean reward by policy, and how many tracking rows one of them answers fully."""
        means = {name: round(mean, 6) for name, mean in sorted(self.total.means().items())}
        return {"mean_reward": means, "rows_answered_fully": self.answered}


def gets_full_reward(row: Mapping[str, Any]) -> str | None:
    """The policy that gets the full reward on this row without looking; None where that says nothing.

    A single multiple-choice row says nothing about a policy: some letter is always right.
    """
    task = task_of_row(row)
    return next(iter(solved_blind(task, blind_rewards_of(task, task.read_row(row)))), None)
