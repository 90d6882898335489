# SPDX-License-Identifier: Apache-2.0
"""TAP-Vid metrics against the published numbers, and a direct re-reading of their definition."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from nemo_gym_video.tasks.tracking import score_tracks, tap_vid
from nemo_gym_video.tasks.tracking.metrics import PointPair

PIXEL = 1000 / 256
ERRORS = [0.5, 3.0, None, 20.0, 1.0]  # frames 1 to 5; occluded at 3


def _pairs(claimed: list[bool]) -> list[PointPair]:
    truth = (250.0, 250.0)
    return [
        PointPair(None if error is None else truth, (250.0 + (error or 7.0) * PIXEL, 250.0), visible)
        for error, visible in zip(ERRORS, claimed, strict=True)
    ]


@pytest.mark.parametrize(
    ("claimed", "occlusion_accuracy", "average_jaccard"),
    [([True] * 5, 0.8, 0.3821), ([True, True, False, True, True], 1, 0.4552), ([False] * 5, 0.2, 0)],
)
def test_published_numbers(claimed: list[bool], occlusion_accuracy: float, average_jaccard: float) -> None:
    result = tap_vid(_pairs(claimed))
    assert result is not None
    assert result.occlusion_accuracy == pytest.approx(occlusion_accuracy)
    assert result.average_jaccard == pytest.approx(average_jaccard, abs=5e-5)
    assert result.delta_avg == pytest.approx(0.6)


def test_an_error_of_exactly_the_threshold_is_outside() -> None:
    at = tap_vid([PointPair((0.0, 0.0), (16 * PIXEL, 0.0), True)])
    below = tap_vid([PointPair((0.0, 0.0), (15.99 * PIXEL, 0.0), True)])
    assert at is not None
    assert below is not None
    assert (at.delta_avg, below.delta_avg) == (0, 0.2)


def test_nothing_visible_gives_nothing() -> None:
    assert tap_vid([]) is None
    assert tap_vid([PointPair(None, (1.0, 1.0), True)]) is None


def _reference(pairs: list[PointPair]) -> tuple[float, float, float]:
    """The definition with plain loops: fractions within each threshold, Jaccard = TP / (visible + FP)."""
    visible = sum(pair.truth is not None for pair in pairs)
    deltas, jaccards = [], []
    for threshold in (1, 2, 4, 8, 16):
        within = true_positive = false_positive = 0
        for pair in pairs:
            near = False
            if pair.truth is not None and pair.answer is not None:
                dx, dy = ((a - b) / 1000 * 256 for a, b in zip(pair.answer, pair.truth, strict=True))
                near = (dx * dx + dy * dy) ** 0.5 < threshold
            within += near
            true_positive += near and pair.answered_visible
            false_positive += pair.answered_visible and not near
        deltas.append(within / visible)
        jaccards.append(true_positive / (visible + false_positive))
    right = sum((pair.truth is not None) == pair.answered_visible for pair in pairs)
    return right / len(pairs), sum(deltas) / 5, sum(jaccards) / 5


def test_random_tracks_match_the_definition() -> None:
    rng = random.Random(0)
    for _ in range(200):
        pairs = []
        for _ in range(rng.randint(1, 12)):
            x, y = rng.random() * 900, rng.random() * 900
            truth = (x, y) if rng.random() < 0.7 else None
            near = (x + rng.gauss(0, 15), y + rng.gauss(0, 15))
            pairs.append(PointPair(truth, near if rng.random() < 0.8 else None, rng.random() < 0.7))
        result = tap_vid(pairs)
        if all(pair.truth is None for pair in pairs):
            assert result is None
            continue
        assert result is not None
        found = (result.occlusion_accuracy, result.delta_avg, result.average_jaccard)
        assert found == pytest.approx(_reference(pairs))


def test_point_rows_with_points_carry_the_numbers(pt_row: dict[str, Any]) -> None:
    tracks = [{"point": 1, "frame": 1, "xy": [500 + 3 * PIXEL, 500]}, {"point": 1, "frame": 2, "visible": False}]
    result = score_tracks(f"<answer>{json.dumps({'tracks': tracks})}</answer>", pt_row)
    assert result.tap_vid is not None
    assert result.tap_vid.occlusion_accuracy == 1
    assert result.tap_vid.delta_avg == pytest.approx(0.6)
    assert result.to_json()["tap_vid"]["average_jaccard"] == pytest.approx(0.6)
    del pt_row["objects"][0]["targets"][0]["xy"]
    assert score_tracks("", pt_row).tap_vid is None
