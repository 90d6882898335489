# SPDX-License-Identifier: Apache-2.0
"""Shares the runs of one prompt out among the media of one turn. Pure arithmetic over counts.

The media stand in prompt order and so do the runs, so the only question is how many runs each item takes. An
item whose number is known takes that many; one unknown item takes what the others leave: items before it take
the first runs, items after it the last. With two unknown items nobody can tell where the first one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment import shares as predicted
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.messages import MediaKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What is known of one item before looking at tokens: its number of runs, and their lengths if predicted."""

    kind: MediaKind
    runs: int | None
    run_lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Runs an item (``None``: cannot be told, an empty tuple: there is none), and the runs that are left."""

    runs: tuple[tuple[Run, ...] | None, ...]
    left_over: tuple[Run, ...] = ()


def assign_runs(needs: Sequence[Need], runs: Sequence[Run], *, open_front: bool = False) -> Shares:
    """Give ``runs`` to the items of ``needs``, in order.

    Where every length is predicted this is the alignment's own rule (``tokens/assign.py``). Where only numbers
    are known and they do not add up, a lone video takes what the images leave and two videos take nothing;
    images alone are served in order. With ``open_front`` the first runs may belong to other media, so
    that only items behind the last unknown one can be served. The caller compares and reports.
    """
    lengths = [need.run_lengths for need in needs]
    if needs and not open_front and None not in lengths:
        wanted = [predicted.Wanted(lengths=need.run_lengths, is_video=need.kind == "video") for need in needs]
        found = predicted.assign_runs(wanted, runs)
        return Shares(runs=found.shares, left_over=found.surplus)
    counts = [need.runs for need in needs]
    if None not in counts and _total(counts) != len(runs):
        counts = [None if need.kind == "video" else need.runs for need in needs]
    unknown = [index for index, count in enumerate(counts) if count is None]
    if not unknown:
        return _in_order(counts, runs)
    first, last = (0 if open_front else unknown[0]), unknown[-1]
    before, after = _total(counts[:first]), _total(counts[last + 1 :])
    middle = len(runs) - before - after
    alone = first == last and not open_front
    if middle < _total(counts[first : last + 1]) or (middle == 0 and not alone):
        return _in_order(counts, runs)
    head = _in_order(counts[:first], runs[:before]).runs
    tail = _in_order(counts[last + 1 :], runs[len(runs) - after :]).runs
    between = (tuple(runs[before : before + middle]),) if alone else (None,) * (last - first + 1)
    return Shares(runs=(*head, *between, *tail))


def carried_count(needs: Sequence[Need], runs: Sequence[Run], *, older: bool) -> int | None:
    """How many of a restarted prompt's ``runs`` belong to media of earlier turns; they come first.

    New media stand behind everything that was there before, so with known numbers the last runs are theirs. A
    video of unknown length is safe only where no older runs can be (``older`` is false): equal lengths prove
    nothing, as clips of one size have equal runs. Otherwise None: it cannot be told.
    """
    if not needs:
        return len(runs)
    counts = [need.runs for need in needs]
    if None in counts:
        return None if older else 0
    return max(0, len(runs) - _total(counts))


def _in_order(counts: Sequence[int | None], runs: Sequence[Run]) -> Shares:
    """First come, first served; an unknown number counts as none."""
    shares: list[tuple[Run, ...]] = []
    start = 0
    for count in counts:
        shares.append(tuple(runs[start : start + (count or 0)]))
        start += count or 0
    return Shares(runs=tuple(shares), left_over=tuple(runs[start:]))


def _total(counts: Sequence[int | None]) -> int:
    return sum(count or 0 for count in counts)
