# SPDX-License-Identifier: Apache-2.0
"""Gives the runs of one model call to the items it introduces, in order, before any length is judged.

As many runs as expected: they pair by position. Otherwise the items that match exactly at both ends are set
aside, and the reading of what is left that needs no guess wins: runs that fused, videos whose runs were pruned
into one, all runs for the single item left; else by position, and what is over is surplus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment.runs import Run

Lengths = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one item is expected to bring: its run lengths in order, or only their number, or neither (None)."""

    lengths: Lengths | None
    is_video: bool
    number: int | None = None

    @property
    def count(self) -> int | None:
        """Number of runs; an image without prediction has one."""
        if self.lengths is not None:
            return len(self.lengths)
        return self.number if self.is_video or self.number is not None else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """``shares[i]`` are the runs of item i, None where they cannot be told; ``surplus`` belongs to no item.

    ``fused`` are the found runs that were split over several regions, with the items (by index) that share them.
    """

    shares: tuple[tuple[Run, ...] | None, ...]
    surplus: tuple[Run, ...] = ()
    fused: tuple[tuple[Run, tuple[int, ...]], ...] = ()


def assign_runs(wanted: Sequence[Wanted], runs: Sequence[Run], *, open_front: bool = False) -> Assignment:
    """Split ``runs`` over the items. With ``open_front`` the first runs may belong to other media."""
    known = [item.lengths for item in wanted if item.lengths is not None]
    if len(known) < len(wanted) or open_front:
        return _by_count(wanted, runs, open_front=open_front)
    if sum(map(len, known)) == len(runs):
        return _by_position(list(map(len, known)), runs)
    first, last, low, high = _matching_ends(known, runs)
    counts = list(map(len, known[:first]))
    if first == last and first and wanted[first - 1].is_video:
        # More tubelets of the kind before: the same video, not something new.
        more = [run for run in runs[low:high] if run.length in known[first - 1]]
        if len(more) == high - low:
            counts[-1] += len(more)
            low = high
    middle = _middle(wanted[first:last], known[first:last], runs[low:high], first)
    left = _by_position(counts, runs[:low]).shares
    right = _by_position(list(map(len, known[last:])), runs[high:]).shares
    return Assignment(shares=(*left, *middle.shares, *right), surplus=middle.surplus, fused=middle.fused)


def _by_position(counts: Sequence[int], runs: Sequence[Run]) -> Assignment:
    shares = []
    place = 0
    for count in counts:
        shares.append(tuple(runs[place : place + count]))
        place += count
    return Assignment(shares=tuple(shares), surplus=tuple(runs[place:]))


def _matching_ends(known: Sequence[Lengths], runs: Sequence[Run]) -> tuple[int, int, int, int]:
    """The half-open ranges of items and of runs that are left when exact matches at both ends are taken away."""
    lengths = tuple(run.length for run in runs)
    first, last, low, high = 0, len(known), 0, len(runs)
    while first < last and lengths[low : low + len(known[first])] == known[first]:
        low += len(known[first])
        first += 1
    while (
        first < last
        and high - len(known[last - 1]) >= low
        and lengths[high - len(known[last - 1]) : high] == known[last - 1]
    ):
        last -= 1
        high -= len(known[last])
    return first, last, low, high


def _middle(wanted: Sequence[Wanted], known: Sequence[Lengths], runs: Sequence[Run], offset: int) -> Assignment:
    if not wanted or not runs:
        return Assignment(shares=((),) * len(wanted), surplus=tuple(runs))
    fused = _split_fused(known, runs, offset)
    if fused is not None:
        return fused
    if len(wanted) == 1:
        return Assignment(shares=(tuple(runs),))
    pruned = [1 if item.is_video else len(lengths) for item, lengths in zip(wanted, known, strict=True)]
    if sum(pruned) == len(runs):
        return _by_position(pruned, runs)
    return _by_position(list(map(len, known)), runs)


def _split_fused(known: Sequence[Lengths], runs: Sequence[Run], offset: int) -> Assignment | None:
    """The runs cut to the expected lengths, when every run is a sum of neighbouring expected ones exactly."""
    expected = [(item, length) for item, lengths in enumerate(known) for length in lengths]
    if len(expected) <= len(runs):
        return None
    shares: list[list[Run]] = [[] for _ in known]
    fused: list[tuple[Run, tuple[int, ...]]] = []
    place = 0
    for run in runs:
        start, sharers = run.start, []
        while start < run.end and place < len(expected):
            item, length = expected[place]
            shares[item].append(Run(start, length, run.token_id))
            sharers.append(item + offset)
            start += length
            place += 1
        if start != run.end:
            return None
        if len(sharers) > 1:
            fused.append((run, tuple(dict.fromkeys(sharers))))
    if place != len(expected):
        return None
    return Assignment(shares=tuple(map(tuple, shares)), fused=tuple(fused))


def _by_count(wanted: Sequence[Wanted], runs: Sequence[Run], *, open_front: bool) -> Assignment:
    """Only numbers of runs are known, and not of every item.

    Items before the first unknown one take the first runs, items behind the last unknown one the last. One unknown
    item takes what the others leave; several take nothing, for nobody can tell where the first one ends. Where the
    numbers do not add up a lone video counts as unknown. With ``open_front`` only items behind the last unknown
    one can be served.
    """
    counts = [item.count for item in wanted]
    if None not in counts and _total(counts) != len(runs):
        counts = [None if item.is_video else item.count for item in wanted]
    unknown = [place for place, count in enumerate(counts) if count is None]
    numbers = [count or 0 for count in counts]
    if not unknown:
        return _by_position(numbers, runs)
    first, last = (0 if open_front else unknown[0]), unknown[-1]
    before, after = sum(numbers[:first]), sum(numbers[last + 1 :])
    middle = len(runs) - before - after
    alone = first == last and not open_front
    if middle < sum(numbers[first : last + 1]) or (middle == 0 and not alone):
        return _by_position(numbers, runs)
    head = _by_position(numbers[:first], runs[:before]).shares
    tail = _by_position(numbers[last + 1 :], runs[len(runs) - after :]).shares
    between = (tuple(runs[before : before + middle]),) if alone else (None,) * (last - first + 1)
    return Assignment(shares=(*head, *between, *tail))


def carried_count(wanted: Sequence[Wanted], runs: Sequence[Run], *, older: bool) -> int | None:
    """How many of a restarted prompt's ``runs`` belong to media of earlier turns; they come first.

    New media stand behind everything that was there before, so with known numbers the last runs are theirs. A
    video of unknown length is safe only where no older runs can be (``older`` is false): equal lengths prove
    nothing, as clips of one size have equal runs. Otherwise None: it cannot be told.
    """
    if not wanted:
        return len(runs)
    counts = [item.count for item in wanted]
    if None in counts:
        return None if older else 0
    return max(0, len(runs) - _total(counts))


def _total(counts: Sequence[int | None]) -> int:
    return sum(count or 0 for count in counts)
