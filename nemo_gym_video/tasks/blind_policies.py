# SPDX-License-Identifier: Apache-2.0
"""What the rows of a run pay a policy that does not look: the number to read a mean reward against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.boxed.options import boxed_row
from nemo_gym_video.tasks.tracking.blind import blind_rewards
from nemo_gym_video.tasks.tracking.track_row import TrackRow


def best_blind(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Mean reward of the best blind policy over ``rows``; None when no row can be read as one of ours.

    Multiple choice: the first option, or the most frequent letter. Tracking: all absent, at the reference, at the
    centre, each over the rows where it applies.
    """
    letters: Counter[str] = Counter()
    first_right = 0
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        try:
            if "options" in row:
                question = boxed_row(row)
                letters[question.expected_answer] += 1
                first_right += next(iter(question.options)) == question.expected_answer
            elif "objects" in row:
                for policy, reward in blind_rewards(TrackRow.from_row(row)).items():
                    rewards[policy].append(reward)
        except RowError:
            continue
    means = [sum(values) / len(values) for values in rewards.values()]
    if letters:
        means.append(max(first_right, max(letters.values())) / letters.total())
    return max(means, default=None)
