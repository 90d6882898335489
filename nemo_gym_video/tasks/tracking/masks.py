# SPDX-License-Identifier: Apache-2.0
"""COCO run-length masks that are never decoded to pixels, and never handed to native code.

Runs alternate between outside and inside, outside first, over pixels in column-major order: pixel (x, y) of a
mask of height ``h`` has index ``x * h + y``. ``size`` is ``[h, w]``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import RowError, Where

GRID = 1000
"""Coordinates run from 0 to ``GRID`` inclusive across the displayed frame, in both directions."""

MAX_SIDE = 1 << 16
_MAX_CHARS_A_NUMBER = 8  # 40 bits, more than any run of the largest mask needs


@dataclass(frozen=True, slots=True)
class RleMask:
    """A binary mask of ``height`` x ``width`` pixels; ``ends`` are the running sums of its run lengths."""

    height: int
    width: int
    ends: tuple[int, ...]

    @classmethod
    def from_coco(cls, size: object, counts: object, *, where: Where | None = None) -> RleMask:
        """Read ``size`` ``[h, w]`` and ``counts``: a compressed string, bytes, or a list of run lengths.

        Raises:
            RowError: the size is none, the counts cannot be read, or they do not add up to ``h * w``.
        """
        height, width = _read_size(size, where)
        total = height * width
        if isinstance(counts, bytes):
            counts = counts.decode("latin-1")
        if isinstance(counts, str):
            ends = _string_ends(counts, total, where)
        elif isinstance(counts, list | tuple):
            ends = _list_ends(counts, total, where)
        else:
            raise RowError("mask counts are of no known form", got=type(counts).__name__,
                           allowed="a string, bytes, or a list of integers", where=where)  # fmt: skip
        if not ends or ends[-1] != total:
            raise RowError("mask counts do not add up to its size", got=ends[-1] if ends else 0,
                           allowed=f"{height} * {width} = {total}", where=where)  # fmt: skip
        return cls(height, width, ends)

    @property
    def area(self) -> int:
        """Pixels inside."""
        return sum(self.ends[index] - self.ends[index - 1] for index in range(1, len(self.ends), 2))

    @property
    def bbox(self) -> tuple[int, int, int, int] | None:
        """Smallest box around the mask in pixels, (x1, y1, x2, y2) with exclusive ends; ``None`` when empty."""
        left, top, right, bottom = self.width, self.height, 0, 0
        for index in range(1, len(self.ends), 2):
            start, end = self.ends[index - 1], self.ends[index]
            if start == end:
                continue
            first, last = start // self.height, (end - 1) // self.height
            left, right = min(left, first), max(right, last + 1)
            if first == last:
                top, bottom = min(top, start % self.height), max(bottom, (end - 1) % self.height + 1)
            else:
                top, bottom = 0, self.height
        return None if left >= right else (left, top, right, bottom)

    def pixel(self, x: float, y: float) -> tuple[int, int]:
        """The pixel (column, row) of a grid point: ``clamp(floor(x / 1000 * w), 0, w - 1)``, and y the same."""
        column = min(max(int(x / GRID * self.width // 1), 0), self.width - 1)
        row = min(max(int(y / GRID * self.height // 1), 0), self.height - 1)
        return column, row

    def contains(self, x: float, y: float) -> bool:
        """Whether the grid point lies inside, by one binary search over the runs."""
        column, row = self.pixel(x, y)
        return bisect_right(self.ends, column * self.height + row) % 2 == 1

    def contains_many(self, xs: npt.NDArray[np.float64], ys: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """``contains`` for arrays of grid points of one shape."""
        columns = np.clip(np.floor(xs / GRID * self.width).astype(np.int64), 0, self.width - 1)
        rows = np.clip(np.floor(ys / GRID * self.height).astype(np.int64), 0, self.height - 1)
        inside: npt.NDArray[np.bool_] = (
            np.searchsorted(np.asarray(self.ends), columns * self.height + rows, side="right") % 2 == 1
        )
        return inside

    def to_coco(self) -> dict[str, object]:
        """The mask as ``{"size": [h, w], "counts": compressed string}``."""
        runs = [end - start for start, end in zip((0, *self.ends), self.ends, strict=False)]
        return {"size": [self.height, self.width], "counts": compress_counts(runs)}


def encode(mask: npt.NDArray[np.bool_] | npt.NDArray[np.uint8]) -> RleMask:
    """The runs of a pixel mask of shape [h, w]; every non-zero pixel is inside.

    Raises:
        RowError: the array is not two-dimensional or has no pixel.
    """
    if mask.ndim != 2 or mask.size == 0:
        raise RowError("mask is no [h, w] array", got=mask.shape)
    height, width = mask.shape
    flat = np.asarray(mask != 0).T.ravel()
    starts = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    ends = [*([0] if flat[0] else []), *starts.tolist(), flat.size]
    return RleMask(height, width, tuple(ends))


def compress_counts(runs: Sequence[int]) -> str:
    """COCO's compressed string of run lengths: 5 bits a character, low bits first, deltas from the fourth on."""
    characters: list[int] = []
    for index, run in enumerate(runs):
        value = run - runs[index - 2] if index > 2 else run
        while True:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            characters.append(bits + (0x20 if more else 0) + 48)
            if not more:
                break
    return bytes(characters).decode("ascii")


def _read_size(size: object, where: Where | None) -> tuple[int, int]:
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise RowError("mask size is no [h, w]", got=size, where=where)
    height, width = size
    for side in (height, width):
        if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= MAX_SIDE:
            raise RowError("mask size is no pair of pixel counts", got=size, allowed=f"1 to {MAX_SIDE}",
                           where=where)  # fmt: skip
    return height, width


def _list_ends(counts: Sequence[object], total: int, where: Where | None) -> tuple[int, ...]:
    for run in counts:
        if isinstance(run, bool) or not isinstance(run, int) or not 0 <= run <= total:
            raise RowError("mask run is no length", got=run, allowed=f"0 to {total}", where=where)
    return tuple(accumulate(counts))  # type: ignore[arg-type]


def _string_ends(counts: str, total: int, where: Where | None) -> tuple[int, ...]:
    """Running sums of a compressed string, in array arithmetic: no loop over characters."""
    if not counts:
        return ()
    try:
        codes = np.frombuffer(counts.encode("ascii"), dtype=np.uint8).astype(np.int64) - 48
    except UnicodeEncodeError:
        raise RowError("mask counts hold a character outside ASCII", where=where) from None
    if codes.min() < 0 or codes.max() > 63 or codes[-1] & 0x20:
        raise RowError("mask counts are no compressed run lengths", got=counts[:40], where=where)
    last = np.flatnonzero((codes & 0x20) == 0)
    first = np.concatenate(([0], last[:-1] + 1))
    lengths = last - first + 1
    if lengths.max() > _MAX_CHARS_A_NUMBER:
        raise RowError("mask run is longer than any mask", where=where)
    shifts = 5 * (np.arange(codes.size) - np.repeat(first, lengths))
    values = np.add.reduceat((codes & 0x1F) << shifts, first)
    # The highest of a number's five-bit groups carries its sign.
    values -= np.where(codes[last] & 0x10, np.int64(1) << 5 * lengths, 0)
    if np.abs(values).max() > total:
        raise RowError("mask run is longer than the mask", allowed=f"up to {total}", where=where)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    if values.min() < 0 or values.max() > total:
        raise RowError("mask run is no length", got=int(values.min()), allowed=f"0 to {total}", where=where)
    return tuple(np.cumsum(values).tolist())
