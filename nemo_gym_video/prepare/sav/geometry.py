# SPDX-License-Identifier: Apache-2.0
"""From masks to points and boxes on the 0..1000 grid of the displayed frame.

A grid coordinate g names pixel ``min(floor(g / 1000 * extent), extent - 1)``, as the verifier reads it. Frames
wider or higher than 1001 pixels have columns or lines that no coordinate names: those are not *reachable*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from nemo_gym_video.tasks.tracking.masks import GRID, RleMask


@dataclass(frozen=True, slots=True)
class InteriorPoint:
    """A grid point inside a mask and its distance in pixels to the nearest pixel outside the mask."""

    xy: tuple[int, int]
    depth: float


@lru_cache(maxsize=64)
def grid_of_pixels(extent: int) -> NDArray[np.int64]:
    """For every pixel of an axis, the grid coordinate nearest to its centre that names it; -1 where none does."""
    grid = np.arange(GRID + 1)
    pixel = np.minimum(np.floor(grid / GRID * extent).astype(np.int64), extent - 1)
    off_centre = np.abs(grid / GRID * extent - (pixel + 0.5))
    best = np.full(extent, -1, dtype=np.int64)
    # Later writes win: the coordinates nearest to their pixel's centre come last.
    order = np.lexsort((-grid, -off_centre))
    best[pixel[order]] = grid[order]
    best.flags.writeable = False
    return best


def mask_pixels(mask: RleMask) -> NDArray[np.bool_]:
    """A validated mask as bool [h, w]."""
    runs = np.diff(np.asarray((0, *mask.ends)))
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return flat.reshape(mask.width, mask.height).T


def interior_point(mask: NDArray[np.bool_]) -> InteriorPoint | None:
    """The reachable grid point deepest inside ``mask`` (bool [h, w]); None when no coordinate hits the mask.

    Depth is the Euclidean distance transform; pixels beyond the frame count as outside. The topmost, then
    leftmost of equally deep points is taken. The centroid would not do: it can lie outside the mask.
    """
    box = pixel_box(mask)
    if box is None:
        return None
    left, top, right, bottom = box
    padded = np.pad(mask[top:bottom, left:right], 1)
    depth = np.asarray(distance_transform_edt(padded), dtype=np.float64)[1:-1, 1:-1]
    columns = grid_of_pixels(mask.shape[1])[left:right]
    lines = grid_of_pixels(mask.shape[0])[top:bottom]
    reachable = (lines >= 0)[:, None] & (columns >= 0)[None, :]
    depth = np.where(reachable, depth, 0.0)
    line, column = np.unravel_index(int(np.argmax(depth)), depth.shape)
    if depth[line, column] <= 0:
        return None
    return InteriorPoint(xy=(int(columns[column]), int(lines[line])), depth=float(depth[line, column]))


def pixel_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of a mask in pixels, right and bottom exclusive; None for an empty mask."""
    columns, lines = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    if not len(columns):
        return None
    return int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1


def grid_box(box: tuple[int, int, int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The smallest grid box that holds a pixel box in a frame of ``size`` (w, h); never degenerate."""
    left, top, right, bottom = box
    width, height = size
    return (
        math.floor(left * GRID / width),
        math.floor(top * GRID / height),
        math.ceil(right * GRID / width),
        math.ceil(bottom * GRID / height),
    )
