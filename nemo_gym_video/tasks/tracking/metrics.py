# SPDX-License-Identifier: Apache-2.0
"""TAP-Vid point metrics, as google-deepmind/tapnet computes them for one video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nemo_gym_video.tasks.tracking.masks import GRID

THRESHOLDS = (1, 2, 4, 8, 16)
"""Pixels of a 256 x 256 frame; an error must be strictly less."""

_FRAME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TapVid:
    """Occlusion accuracy, the mean over thresholds of points within (<delta_avg), and average Jaccard; 0 to 1."""

    occlusion_accuracy: float
    delta_avg: float
    average_jaccard: float


@dataclass(frozen=True, slots=True)
class PointPair:
    """One evaluated frame of one track: grid coordinates, or ``None`` where there is none to speak of.

    ``truth`` is ``None`` when the point is occluded. ``answer`` may be known although ``answered_visible`` is
    false.
    """

    truth: tuple[float, float] | None
    answer: tuple[float, float] | None
    answered_visible: bool


def tap_vid(pairs: Sequence[PointPair]) -> TapVid | None:
    """The metrics over all ``pairs`` of one video, query frames left out; ``None`` when no point is visible.

    Average Jaccard at a threshold is TP / (visible points + FP): TP are visible points answered visible and
    within, FP are points answered visible that are occluded or not within.
    """
    visible = np.array([pair.truth is not None for pair in pairs], dtype=np.bool_)
    if not visible.any():
        return None
    claimed = np.array([pair.answered_visible for pair in pairs])
    error = np.array([_squared_error(pair) for pair in pairs])
    deltas: list[float] = []
    jaccards: list[float] = []
    for threshold in THRESHOLDS:
        within = error < threshold**2
        hits = visible & within
        true_positives = np.count_nonzero(hits & claimed)
        false_positives = np.count_nonzero(claimed & ~hits)
        deltas.append(np.count_nonzero(hits) / np.count_nonzero(visible))
        jaccards.append(true_positives / (np.count_nonzero(visible) + false_positives))
    return TapVid(
        occlusion_accuracy=float(np.mean(visible == claimed)),
        delta_avg=sum(deltas) / len(deltas),
        average_jaccard=sum(jaccards) / len(jaccards),
    )


def _squared_error(pair: PointPair) -> float:
    """Squared distance in pixels of the metric's frame; infinite when one of the two is missing."""
    if pair.truth is None or pair.answer is None:
        return float("inf")
    scale = _FRAME / GRID
    return sum(((ours - theirs) * scale) ** 2 for ours, theirs in zip(pair.answer, pair.truth, strict=True))
