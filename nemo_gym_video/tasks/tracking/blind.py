# SPDX-License-Identifier: Apache-2.0
"""Policies that do not look at the video: what a tracking row pays for a constant answer."""

from __future__ import annotations

from collections.abc import Callable

from nemo_gym_video.tasks.tracking.entries import Entry
from nemo_gym_video.tasks.tracking.scoring import score_entries
from nemo_gym_video.tasks.tracking.track_row import TrackObject, TrackRow

Location = tuple[float, ...] | None
Policy = Callable[[TrackRow, TrackObject], Location]
"""The one answer to give for an object on all its frames: a location, or ``None`` for absent."""

_CENTRE_POINT = (500.0, 500.0)
_CENTRE_BOX = (250.0, 250.0, 750.0, 750.0)


def all_absent(row: TrackRow, item: TrackObject) -> Location:
    """The object is nowhere."""
    return None


def at_reference(row: TrackRow, item: TrackObject) -> Location:
    """The object stays where the question shows it; absent when the question shows it nowhere."""
    return item.reference_bbox if row.task == "box" else item.reference_xy


def at_centre(row: TrackRow, item: TrackObject) -> Location:
    """The object is in the middle of the frame (a box takes half of each side)."""
    return _CENTRE_BOX if row.task == "box" else _CENTRE_POINT


POLICIES: dict[str, Policy] = {"all absent": all_absent, "at reference": at_reference, "at centre": at_centre}


def constant_entries(row: TrackRow, policy: Policy) -> list[Entry]:
    """The honest answer of ``policy``: one entry for every asked cell."""
    return [Entry(item.id, target.frame, policy(row, item)) for item in row.objects for target in item.targets]


def blind_rewards(row: TrackRow, *, absence_score: float = 1.0) -> dict[str, float]:
    """The ``strict`` reward of every policy on ``row``, by its name in ``POLICIES``.

    A policy that knows no place for an object (``at reference`` on a ref row) is left out.
    """
    score = absence_score if row.absence_score is None else row.absence_score
    rewards: dict[str, float] = {}
    for name, policy in POLICIES.items():
        places = [policy(row, item) for item in row.objects]
        if policy is not all_absent and None in places:
            continue
        rewards[name] = score_entries(constant_entries(row, policy), row, absence_score=score).reward
    return rewards


def answered_blind(row: TrackRow, *, limit: float = 1 - 1e-9) -> str | None:
    """The name of a policy that gets at least ``limit`` on ``row`` without looking: such a row teaches nothing."""
    rewards = blind_rewards(row)
    best = max(rewards, key=lambda name: rewards[name])
    return best if rewards[best] >= limit else None
