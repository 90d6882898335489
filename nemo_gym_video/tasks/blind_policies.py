# SPDX-License-Identifier: Apache-2.0
"""What rows pay a policy that does not look: the number to read a mean reward against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.registry import AnyTask, task_of_row
from nemo_gym_video.tasks.task import Answer

_FULL = 1 - 1e-9
_FIXED = "always "


def blind_rewards_of(task: AnyTask, row: Any) -> dict[str, float]:
    """The reward of every blind answer that ``task`` knows for a row, by the policy's name."""
    return {
        name: task.score(row, said if isinstance(said, Answer) else Answer(said)).reward
        for name, said in task.blind(row).items()
    }


def solved_blind(task: AnyTask, rewards: Mapping[str, float]) -> list[str]:
    """The policies that get everything on a row, where that makes the row worthless; best first."""
    if not task.blind_teaches_nothing:
        return []
    return sorted((name for name, reward in rewards.items() if reward >= _FULL), key=lambda name: -rewards[name])


@dataclass(slots=True)
class BlindSum:
    """Sums of rewards by policy, each over the rows where it applies."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, rewards: Mapping[str, float]) -> None:
        """Count one row's rewards."""
        for name, reward in rewards.items():
            self.sums[name] += reward
            self.counts[name] += 1

    def means(self) -> dict[str, float]:
        """Mean reward by policy. Of the policies ``always …`` only the best: together they are one guess."""
        means = {name: self.sums[name] / count for name, count in self.counts.items()}
        fixed = {name: mean for name, mean in means.items() if name.startswith(_FIXED)}
        best = max(fixed, key=lambda name: fixed[name], default=None)
        return {name: mean for name, mean in means.items() if name not in fixed or name == best}


def best_blind(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Mean reward of the best blind policy over ``rows``; None where no row has blind answers."""
    total = BlindSum()
    for raw in rows:
        try:
            task = task_of_row(raw)
            total.add(blind_rewards_of(task, task.read_row(raw)))
        except RowError:
            continue
    return max(total.means().values(), default=None)
