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
    """What one item is expected to bring: its run lengths in order, None where nothing was predicted."""

    lengths: Lengths | None
    is_video: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """``shares[i]`` are the runs of item i; ``surplus`` belongs to no item.

    ``fused`` are the found runs that were split over several regions, with the items (by index) that share them.
    """

    shares: tuple[tuple[Run, ...], ...]
    surplus: tuple[Run, ...] = ()
    fused: tuple[tuple[Run, tuple[int, ...]], ...] = ()


def assign_runs(wanted: Sequence[Wanted], runs: Sequence[Run]) -> Assignment:
    """Split ``runs`` over the items."""
    known = [item.lengths for item in wanted if item.lengths is not None]
    if len(known) < len(wanted):
        return _by_count(wanted, runs)
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


def _by_count(wanted: Sequence[Wanted], runs: Sequence[Run]) -> Assignment:
    """Some items have no prediction: an image then takes one run, and one video what the others leave over."""
    counts = [1 if item.lengths is None else len(item.lengths) for item in wanted]
    open_videos = [place for place, item in enumerate(wanted) if item.lengths is None and item.is_video]
    if len(open_videos) == 1:
        counts[open_videos[0]] += max(0, len(runs) - sum(counts))
    return _by_position(counts, runs)
