# SPDX-License-Identifier: Apache-2.0
"""Finds runs: maximal stretches of one media token id in a token sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import AlignmentError

TokenArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` tokens of one media ``token_id`` from position ``start`` on."""

    start: int
    length: int
    token_id: int

    @property
    def end(self) -> int:
        """First position after the run."""
        return self.start + self.length


def find_runs(
    token_ids: Sequence[int] | TokenArray, media_token_ids: Collection[int], *, start: int = 0
) -> tuple[Run, ...]:
    """All runs at positions ``start`` and later, in order; a run that began earlier is cut there.

    Two media ids side by side are two runs. ``Run.start`` counts from the beginning of ``token_ids``.

    Raises:
        AlignmentError: ``token_ids`` is no flat sequence of integers.
    """
    ids = token_array(token_ids)
    is_media = np.zeros(len(ids), dtype=bool)
    for media_id in media_token_ids:
        is_media |= ids == media_id
    is_media[:start] = False
    places = np.flatnonzero(is_media)
    if not len(places):
        return ()
    found = ids[places]
    begins = np.flatnonzero((np.diff(places, prepend=-2) != 1) | (np.diff(found, prepend=found[0]) != 0))
    lengths = np.diff(begins, append=len(places))
    return tuple(map(Run, places[begins].tolist(), lengths.tolist(), found[begins].tolist()))


def token_array(token_ids: Sequence[int] | TokenArray, *, name: str = "token ids") -> TokenArray:
    """``token_ids`` as an int64 array of shape [n]. Raises ``AlignmentError`` for anything but flat integers."""
    try:
        ids = np.asarray(token_ids)
    except (ValueError, OverflowError) as error:
        raise AlignmentError(f"{name} are no flat list of integers", got=str(error)) from error
    if ids.size == 0 and ids.ndim == 1:
        return np.zeros(0, dtype=np.int64)
    # numpy reads a list that mixes booleans with integers as integers; ids that are all booleans it does not.
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise AlignmentError(f"{name} are no flat list of integers", got=_odd_one(token_ids))
    return ids.astype(np.int64, copy=False)


def _odd_one(token_ids: object) -> object:
    if isinstance(token_ids, Sequence):
        return next((item for item in token_ids if isinstance(item, bool) or not isinstance(item, int)), "…")
    return type(token_ids).__name__


def plain_ids(token_ids: Sequence[int] | TokenArray, *, name: str) -> list[int]:
    """``token_ids`` as a list, without a copy where it is one. Its elements are not looked at.

    Raises:
        AlignmentError: ``token_ids`` is no flat sequence.
    """
    if isinstance(token_ids, list):
        return token_ids
    return list(token_ids) if isinstance(token_ids, tuple) else token_array(token_ids, name=name).tolist()


def checked_ids(token_ids: list[int], *, name: str) -> list[int]:
    """``token_ids`` as plain integers.

    Raises:
        AlignmentError: an element is no integer.
    """
    try:  # a sum is the fastest look at every element that there is
        fits = type(sum(token_ids)) is int and not (token_ids and isinstance(token_ids[0], bool))
    except TypeError:
        fits = False
    return token_ids if fits else token_array(token_ids, name=name).tolist()


def list_runs(token_ids: list[int], media_token_ids: Sequence[int], *, shift: int = 0) -> tuple[Run, ...]:
    """``find_runs`` for a plain list, many times faster: no array is made of it. ``shift`` is added to starts."""
    runs = []
    size = len(token_ids)
    for media_id in set(media_token_ids):
        end = 0
        while end < size:
            try:
                start = token_ids.index(media_id, end)
            except ValueError:
                break
            end = _run_end(token_ids, start, media_id, size)
            runs.append(Run(start + shift, end - start, media_id))
    return tuple(sorted(runs, key=lambda run: run.start)) if len(media_token_ids) > 1 else tuple(runs)


def _run_end(token_ids: list[int], start: int, media_id: int, size: int) -> int:
    """First position after the run, found by comparing slices: doubling steps, then halving ones."""
    end, step = start + 1, 1
    while step:
        grown = end + step
        if grown <= size and token_ids[end:grown] == [media_id] * step:
            end = grown
            step *= 2
        else:
            step //= 2
    return end


def shared_prefix(seen: list[int], prompt: list[int]) -> int:
    """Number of leading tokens that both have; ``len(seen)`` when ``prompt`` extends ``seen``."""
    low, high = 0, min(len(seen), len(prompt))
    if seen == prompt[:high] if high == len(seen) else seen[:high] == prompt:
        return high
    while low < high:  # the first difference lies in [low, high)
        middle = (low + high + 1) // 2
        if seen[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
