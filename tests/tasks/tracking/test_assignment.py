# SPDX-License-Identifier: Apache-2.0
"""The assignment of predicted ids against an exhaustive search over all of them."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from nemo_gym_video.tasks.tracking import TrackRow, score_tracks
from nemo_gym_video.tasks.tracking.entries import Entry, Rules
from nemo_gym_video.tasks.tracking.scoring import score_entries

GRID = 10


def _row(rng: random.Random, objects: int, frames: int) -> dict[str, Any]:
    def target(frame: int) -> dict[str, Any]:
        if rng.random() < 0.3:
            return {"frame": frame, "visible": False}
        cells = sorted(rng.sample(range(1, GRID * GRID), 4))
        runs = [b - a for a, b in itertools.pairwise([0, *cells, GRID * GRID])]
        return {"frame": frame, "visible": True, "mask": {"size": [GRID, GRID], "counts": runs}}

    asked = [rng.sample(range(1, frames + 1), rng.randint(1, frames)) for _ in range(objects)]
    return {
        "task": "ref",
        "objects": [{"id": i + 1, "targets": [target(frame) for frame in own]} for i, own in enumerate(asked)],
    }


def _entries(rng: random.Random, ids: int, frames: int) -> list[Entry]:
    entries = []
    for identity in range(ids):
        for _ in range(rng.randint(1, frames + 2)):
            place = None if rng.random() < 0.3 else (rng.random() * 1000, rng.random() * 1000)
            entries.append(Entry(identity, rng.randint(0, frames + 1), place))
    rng.shuffle(entries)
    return entries


def _cell(target: Any, answers: list[Entry], rules: Rules, absence: float) -> float:
    """One cell of a ref row for one id, straight from the rules."""
    if not answers:
        return 0.0 if target.visible else absence
    credits = []
    for answer in answers:
        if target.visible:
            credits.append(float(answer.location is not None and target.mask.contains(*answer.location)))
        else:
            credits.append(absence if answer.location is None else 0.0)
    return min(credits) if rules == "strict" else max(credits)


def _exhaustive(row: TrackRow, entries: list[Entry], rules: Rules, absence: float) -> tuple[float, float]:
    """Best sum of object means over every one-to-one choice, and the best reward among equals."""
    ids = sorted({entry.id for entry in entries}, key=str)
    best = (0.0, 0.0)
    for chosen in set(itertools.permutations([*ids, *[None] * len(row.objects)], len(row.objects))):
        total, used = 0.0, set()
        for item, identity in zip(row.objects, chosen, strict=True):
            own = [entry for entry in entries if entry.id == identity]
            asked = {target.frame for target in item.targets}
            if identity is None or (rules == "strict" and not any(entry.frame in asked for entry in own)):
                continue
            cells = [
                _cell(target, [entry for entry in own if entry.frame == target.frame], rules, absence)
                for target in item.targets
            ]
            total += sum(cells) / len(cells)
            used |= {(identity, frame) for frame in asked}
        kept = len({(entry.id, entry.frame) for entry in entries} & used)
        reward = total / len(row.objects) * row.cells / (row.cells + len(entries) - kept)
        best = max(best, (round(total, 12), reward))
    return best


def _check(seed: int, objects: int, ids: int, rules: Rules) -> None:
    rng = random.Random(seed)
    frames = rng.randint(1, 5)
    row = TrackRow.from_row(_row(rng, objects, frames))
    entries = _entries(rng, ids, frames)
    absence = rng.choice([1.0, 0.5, 0.0])
    result = score_entries(entries, row, rules=rules, absence_score=absence)
    total, reward = _exhaustive(row, entries, rules, absence)
    assert sum(item.mean for item in result.object_scores) == pytest.approx(total, abs=1e-8)
    if rules == "strict":
        assert result.reward == pytest.approx(reward, abs=1e-8)
    rng.shuffle(entries)
    names = dict(zip(range(ids), rng.sample(range(-50, 50), ids), strict=True))
    renamed = [Entry(names[int(entry.id)], entry.frame, entry.location) for entry in entries]
    again = score_entries(renamed, row, rules=rules, absence_score=absence)
    assert sum(item.mean for item in again.object_scores) == pytest.approx(total, abs=1e-8)
    if rules == "strict":
        assert again.reward == pytest.approx(result.reward, abs=1e-9)


@pytest.mark.parametrize("rules", ["strict", "baseline"])
@pytest.mark.parametrize(("objects", "ids"), list(itertools.product(range(1, 4), range(1, 5))))
def test_assignment_is_the_best_there_is(objects: int, ids: int, rules: Rules) -> None:
    for seed in range(12):
        _check(seed, objects, ids, rules)


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["strict", "baseline"])
@pytest.mark.parametrize(("objects", "ids"), [(4, 6), (5, 5), (6, 4), (6, 6)])
def test_assignment_is_the_best_up_to_six_by_six(objects: int, ids: int, rules: Rules) -> None:
    for seed in range(3):
        _check(seed, objects, ids, rules)


def test_more_ids_than_can_be_searched_are_assigned() -> None:
    rng = random.Random(5)
    row = TrackRow.from_row(_row(rng, 20, 6))
    entries = _entries(rng, 500, 6)
    best = score_entries(entries, row)
    for _ in range(30):
        ids = rng.sample(range(500), 20)
        total = 0.0
        for item, identity in zip(row.objects, ids, strict=True):
            own = [entry for entry in entries if entry.id == identity]
            cells = [_cell(t, [e for e in own if e.frame == t.frame], "strict", 1.0) for t in item.targets]
            total += sum(cells) / len(cells)
        assert sum(item.mean for item in best.object_scores) >= total


def test_an_id_is_assigned_only_where_it_answers_an_asked_frame() -> None:
    absent = [{"frame": frame, "visible": False} for frame in (2, 3)]
    row = {"task": "ref", "objects": [{"id": 1, "targets": absent}]}

    def answer(frame: int) -> str:
        return f"<answer>{json.dumps({'tracks': [{'id': 9, 'frame': frame, 'visible': False}]})}</answer>"

    assert score_tracks(answer(2), row).reward == 1
    assert score_tracks(answer(1), row).reward == 0
    assert score_tracks(answer(1), row, rules="baseline").reward == pytest.approx(2 / 3)


def test_huge_ids_are_ids_too() -> None:
    """Integers that Python hashes alike, and far longer ones, are told apart."""
    clash = (1 << 61) - 1
    row = TrackRow.from_row(_row(random.Random(2), 3, 4))
    entries = _entries(random.Random(3), 3, 4)
    tracks = [
        {"id": clash * (int(entry.id) + 1), "frame": entry.frame}
        | ({"visible": False} if entry.location is None else {"xy": entry.location})
        for entry in entries
    ]
    result = score_tracks(f"<answer>{json.dumps({'tracks': tracks})}</answer>", row)
    assert result.reason == "scored"
    assert result.reward == score_entries(entries, row).reward
    json.dumps(result.to_json())
