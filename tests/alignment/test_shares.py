# SPDX-License-Identifier: Apache-2.0
"""Which runs an item takes, against every split that is possible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment.run_counts import video_runs
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.alignment.shares import Wanted, assign_runs, carried_count
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.presets import load_settings


def runs_of(count: int) -> tuple[Run, ...]:
    return tuple(Run(10 * place, place % 3 + 1, 9) for place in range(count))


def image() -> Wanted:
    return Wanted(lengths=None, is_video=False)


def video(runs: int | None) -> Wanted:
    return Wanted(lengths=None, is_video=True, number=runs)


def possible_splits(needs: Sequence[Wanted], count: int) -> list[tuple[int, ...]]:
    """All numbers of runs an item, by brute force: as many as known, at least one, ``count`` together."""
    choices = [[need.count] if need.count is not None else range(1, count + 1) for need in needs]
    return [split for split in itertools.product(*choices) if sum(split) == count]


needs_lists = st.lists(st.sampled_from([image(), image(), video(1), video(2), video(3), video(None)]), max_size=5)


@settings(max_examples=400, deadline=None)
@given(needs_lists, st.integers(0, 9))
def test_what_is_given_is_what_every_possible_split_agrees_on(needs: list[Wanted], count: int) -> None:
    splits = possible_splits(needs, count)
    if not splits:
        return
    shares = assign_runs(needs, runs_of(count))
    assert shares.surplus == ()
    for place, own in enumerate(shares.shares):
        ranges = {(sum(split[:place]), sum(split[: place + 1])) for split in splits}
        if own is None:
            assert [need.count for need in needs].count(None) > 1
            continue
        assert len(ranges) == 1 or [need.count for need in needs].count(None) > 1
        assert own == runs_of(count)[slice(*ranges.pop())]


@settings(max_examples=400, deadline=None)
@given(needs_lists, st.integers(0, 9), st.booleans())
def test_no_run_is_given_twice_or_out_of_order(needs: list[Wanted], count: int, open_front: bool) -> None:
    shares = assign_runs(needs, runs_of(count), open_front=open_front)
    given_runs = [run for own in shares.shares for run in own or ()]
    assert len(shares.shares) == len(needs)
    assert [run.start for run in given_runs] == sorted({run.start for run in given_runs})
    everything = {*given_runs, *shares.surplus}
    assert everything <= set(runs_of(count))
    assert None in shares.shares or everything == set(runs_of(count))


@pytest.mark.parametrize(
    ("needs", "count", "right"),
    [
        ([image(), image()], 1, [1, 0]),
        ([image()], 3, [1]),
        ([video(None)], 0, [0]),
        ([image(), video(None), image()], 1, [1, 0, 0]),
        ([image(), video(None), image()], 2, [1, 0, 1]),
        ([video(2), image()], 5, [4, 1]),
        ([video(2), video(2)], 5, [None, None]),
        ([image(), video(2), video(2), image()], 5, [1, None, None, 1]),
        ([], 2, []),
    ],
)
def test_numbers_that_do_not_add_up(needs: list[Wanted], count: int, right: list[int | None]) -> None:
    shares = assign_runs(needs, runs_of(count))
    assert [None if own is None else len(own) for own in shares.shares] == right


def test_predicted_lengths_tell_which_end_is_missing() -> None:
    """With lengths the alignment's rule decides: the item whose runs are there keeps them."""
    needs = [Wanted(lengths=(5, 5), is_video=True), Wanted(lengths=(7,), is_video=False)]
    lost = assign_runs(needs, (Run(0, 5, 9), Run(10, 7, 9)))
    assert [len(own or ()) for own in lost.shares] == [1, 1]


@pytest.mark.parametrize(
    ("needs", "count", "older", "right"),
    [
        ([], 3, True, 3),
        ([image()], 3, True, 2),
        ([image(), video(2)], 2, True, 0),
        ([video(None)], 3, False, 0),
        ([video(None)], 3, True, None),
        ([image(), video(None)], 3, True, None),
    ],
)
def test_runs_carried_over_a_restart(needs: list[Wanted], count: int, older: bool, right: int | None) -> None:
    assert carried_count(needs, runs_of(count), older=older) == right


def test_runs_of_a_video_by_family() -> None:
    omni = load_settings("nemotron_omni")
    assert isinstance(omni, NemotronOmniSettings)
    assert [video_runs(omni, frames) for frames in (1, 2, 3, 64)] == [1, 1, 2, 32]
    assert video_runs(omni, None) is None
    assert video_runs(None, 4) is None
    # One run for the whole clip, whatever its length: then the length need not be known.
    qwen = load_settings("qwen2_5_vl")
    assert video_runs(qwen, 7) == video_runs(qwen, None) == 1
