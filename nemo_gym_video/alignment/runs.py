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
