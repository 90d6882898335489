# SPDX-License-Identifier: Apache-2.0
"""Policies that do not look at the video: what a tracking row pays for a constant answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from nemo_gym_video.tasks.tracking.entries import Entry
from nemo_gym_video.tasks.tracking.schema import ID_KEYS, LOCATION_KEYS
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


def constant_answers(row: TrackRow, frames: Collection[int] | None = None) -> dict[str, str]:
    """What every policy would write, by its name, for the asked cells of ``frames`` (None: of all).

    A policy that knows no place for an object (``at reference`` on a ref row) is left out.
    """
    return {
        name: _as_answer(
            row, [entry for entry in constant_entries(row, policy) if frames is None or entry.frame in frames]
        )
        for name, policy in POLICIES.items()
        if policy is all_absent or None not in [policy(row, item) for item in row.objects]
    }


def _as_answer(row: TrackRow, entries: list[Entry]) -> str:
    tracks: list[dict[str, Any]] = []
    for entry in entries:
        said = {"visible": False} if entry.location is None else {LOCATION_KEYS[row.task]: list(entry.location)}
        tracks.append({ID_KEYS[row.task]: entry.id, "frame": entry.frame, **said})
    return f"<answer>{json.dumps({'tracks': tracks})}</answer>"


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
