# SPDX-License-Identifier: Apache-2.0
"""Which predicted id stands for which object of a text-referred row: the best one-to-one choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from nemo_gym_video.tasks.tracking.entries import Entry, Rules
from nemo_gym_video.tasks.tracking.track_row import TrackObject

_TIE = 1e-9  # far below any difference of object means that matters; all of an answer's ties add up to less

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def assign_ids(
    objects: Sequence[TrackObject], entries: Sequence[Entry], *, rules: Rules, absence_score: float
) -> dict[int | str, int]:
    """Predicted id to index of its object, so that the sum of object means is largest.

    Among equally good choices the one that leaves fewest entries over is taken, so that the reward does not
    depend on the order of entries or on the names of ids. Polynomial time (the Hungarian method).
    """
    if not entries:
        return {}
    ids = {identity: index for index, identity in enumerate(dict.fromkeys(entry.id for entry in entries))}
    asked = {target.frame for item in objects for target in item.targets}
    claims = _claims_by_frame(entries, ids, asked)
    means = np.zeros((len(objects), len(ids)))
    answered = np.zeros((len(objects), len(ids)), dtype=np.int32)
    for index, item in enumerate(objects):
        means[index], answered[index] = _object_means(item, claims, len(ids), rules, absence_score)
    allowed = answered > 0 if rules == "strict" else np.ones_like(answered, dtype=np.bool_)
    weights = np.where(allowed, means + answered * (_TIE / (len(entries) + 1)), 0.0)
    names = list(ids)
    return {names[column]: row for row, column in _best_pairs(weights) if allowed[row, column]}


def _best_pairs(weights: FloatArray) -> list[tuple[int, int]]:
    from scipy.optimize import linear_sum_assignment  # start-up: only text-referred rows need scipy

    rows, columns = weights.shape
    keep = np.arange(columns)
    if columns > rows * rows:
        # Each of n objects has one of its n best ids in some best choice: the others hold at most n - 1 of them.
        keep = np.unique(np.argpartition(weights, columns - rows, axis=1)[:, columns - rows :])
    chosen_rows, chosen = linear_sum_assignment(weights[:, keep], maximize=True)
    return [(int(row), int(keep[column])) for row, column in zip(chosen_rows, chosen, strict=True)]


class _FrameClaims:
    """The entries on one frame: their ids as ``ids[inverse]``, where they are, and whether they are anywhere."""

    __slots__ = ("counts", "ids", "inverse", "located", "xs", "ys")

    def __init__(self, claims: Sequence[tuple[int, tuple[float, ...] | None]]) -> None:
        self.ids, self.inverse, self.counts = np.unique(
            np.fromiter((index for index, _ in claims), dtype=np.int64, count=len(claims)),
            return_inverse=True,
            return_counts=True,
        )
        points = [(0.0, 0.0) if location is None else location for _, location in claims]
        self.xs, self.ys = np.array(points, dtype=np.float64).T
        self.located = np.array([location is not None for _, location in claims])


def _claims_by_frame(
    entries: Sequence[Entry], ids: dict[int | str, int], asked: Collection[int | str]
) -> dict[int | str, _FrameClaims]:
    frames: dict[int | str, list[tuple[int, tuple[float, ...] | None]]] = {frame: [] for frame in asked}
    for identity, frame, location in entries:
        if frame in frames:
            frames[frame].append((ids[identity], location))
    return {frame: _FrameClaims(claims) for frame, claims in frames.items() if claims}


def _object_means(
    item: TrackObject, claims: dict[int | str, _FrameClaims], ids: int, rules: Rules, absence_score: float
) -> tuple[FloatArray, IntArray]:
    """For every predicted id: the object's mean if the id were its own, and how many of its cells it answers."""
    inside: IntArray = np.zeros(ids, dtype=np.int64)
    denied: IntArray = np.zeros(ids, dtype=np.int64)  # absent cells that the id gives a location
    answered: IntArray = np.zeros(ids, dtype=np.int64)
    absent = 0
    for target in item.targets:
        absent += not target.visible
        claim = claims.get(target.frame)
        if claim is None:
            continue
        right = ~claim.located
        if target.mask is not None:
            right = claim.located & target.mask.contains_many(claim.xs, claim.ys)
        hits = np.bincount(claim.inverse, weights=right, minlength=claim.ids.size)
        good = hits == claim.counts if rules == "strict" else hits > 0
        answered[claim.ids] += 1
        if target.visible:
            inside[claim.ids] += good
        else:
            denied[claim.ids] += ~good
    return (inside + absence_score * (absent - denied)) / len(item.targets), answered
