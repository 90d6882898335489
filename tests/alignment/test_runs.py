# SPDX-License-Identifier: Apache-2.0
"""Runs against a brute-force oracle (``itertools.groupby``)."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment.runs import Run, find_runs
from nemo_gym_video.errors import AlignmentError


def oracle(ids: list[int], media: set[int], start: int) -> list[tuple[int, int, int]]:
    kept = [(place, token) for place, token in enumerate(ids) if place >= start]
    runs = []
    for token, group in itertools.groupby(kept, key=lambda entry: entry[1]):
        places = [place for place, _ in group]
        if token in media:
            runs.append((places[0], len(places), token))
    return runs


@settings(max_examples=500, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60), st.sets(st.integers(0, 3)), st.integers(0, 70))
def test_agrees_with_groupby(ids: list[int], media: set[int], start: int) -> None:
    expected = oracle(ids, media, start)
    assert [(run.start, run.length, run.token_id) for run in find_runs(ids, media, start=start)] == expected
    assert find_runs(np.array(ids, dtype=np.int64), media, start=start) == tuple(Run(*entry) for entry in expected)


def test_ids_side_by_side_are_two_runs() -> None:
    assert find_runs([7, 7, 8, 1, 8], {7, 8}) == (Run(0, 2, 7), Run(2, 1, 8), Run(4, 1, 8))
    assert find_runs([7, 7, 8, 1, 8], {9}) == ()


def test_run_is_cut_at_start() -> None:
    assert find_runs([7, 7, 7, 1], {7}, start=2) == (Run(2, 1, 7),)
    assert find_runs([7, 7, 7, 1], {7})[0].end == 3


def test_long_prompt() -> None:
    ids = ([1] + [18] * 255) * 4000
    runs = find_runs(ids, (18,))
    assert len(runs) == 4000
    assert {run.length for run in runs} == {255}


@pytest.mark.parametrize(
    "ids", [[1, 2.5], [1, "18"], [[1], [2]], [1, [2]], [None], [2**70], [True], "18", {"a": 1}, 3]
)
def test_not_a_flat_list_of_integers(ids: object) -> None:
    with pytest.raises(AlignmentError, match="no flat list of integers"):
        find_runs(ids, (18,))  # type: ignore[arg-type]
