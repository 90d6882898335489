# SPDX-License-Identifier: Apache-2.0
"""Points and boxes against brute force over the whole grid and against pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nemo_gym_video.prepare.sav.geometry import grid_box, grid_of_pixels, interior_point, mask_pixels
from nemo_gym_video.tasks.tracking.masks import encode


def pixel_of(grid: int, extent: int) -> int:
    """The verifier's rule, written out."""
    return min(max(math.floor(grid / 1000 * extent), 0), extent - 1)


@pytest.mark.parametrize("extent", [1, 7, 108, 480, 848, 1000, 1001, 1080, 1920, 4096])
def test_a_pixels_grid_coordinate_names_that_pixel(extent: int) -> None:
    named = {pixel_of(grid, extent) for grid in range(1001)}
    table = grid_of_pixels(extent)
    for pixel in range(extent):
        grid = int(table[pixel])
        if grid < 0:
            assert pixel not in named
        else:
            assert pixel_of(grid, extent) == pixel


def test_some_pixels_of_a_wide_frame_cannot_be_named() -> None:
    assert (grid_of_pixels(1920) < 0).sum() == 1920 - len({pixel_of(grid, 1920) for grid in range(1001)})
    assert (grid_of_pixels(640) >= 0).all()


def brute_depth(mask: NDArray[np.bool_], x: int, y: int) -> float:
    """Distance from a pixel to the nearest one outside, the frame's surroundings counted as outside."""
    padded = np.pad(mask, 1)
    lines, columns = np.nonzero(~padded)
    return float(np.hypot(lines - (y + 1), columns - (x + 1)).min())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_point_is_the_deepest_reachable_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = np.zeros((18, 25), dtype=np.bool_)
    for _ in range(3):
        top, left, height, width = (int(rng.integers(1, limit)) for limit in (16, 22, 9, 9))
        mask[top : top + height, left : left + width] = True
    found = interior_point(mask)
    assert found is not None
    column, line = pixel_of(found.xy[0], 25), pixel_of(found.xy[1], 18)
    assert mask[line, column]
    best = max(brute_depth(mask, int(x), int(y)) for y, x in zip(*np.nonzero(mask), strict=True))
    assert found.depth == pytest.approx(best)
    assert brute_depth(mask, column, line) == pytest.approx(best)
    assert encode(mask).contains(*found.xy)


def test_a_rings_point_lies_on_the_ring_where_its_centroid_does_not() -> None:
    lines, columns = np.mgrid[0:101, 0:101]
    radius = np.hypot(lines - 50, columns - 50)
    ring = (radius > 30) & (radius < 42)
    found = interior_point(ring)
    assert found is not None
    assert ring[pixel_of(found.xy[1], 101), pixel_of(found.xy[0], 101)]
    assert not ring[50, 50]


def test_a_thin_mask_between_grid_columns_has_no_point() -> None:
    column = int(np.flatnonzero(grid_of_pixels(1920) < 0)[0])
    mask = np.zeros((1080, 1920), dtype=np.bool_)
    mask[100:900, column] = True
    assert interior_point(mask) is None
    mask[100:900, column + 1] = True
    assert interior_point(mask) is not None


def test_an_empty_mask_has_no_point() -> None:
    assert interior_point(np.zeros((4, 6), dtype=np.bool_)) is None


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2000), st.integers(1, 1200), st.randoms(use_true_random=False))
def test_a_grid_box_holds_its_pixels_and_is_never_degenerate(width: int, height: int, rng: object) -> None:
    draw = np.random.default_rng(rng.randrange(1 << 30))  # type: ignore[attr-defined]
    left, top = int(draw.integers(width)), int(draw.integers(height))
    right, bottom = int(draw.integers(left, width)) + 1, int(draw.integers(top, height)) + 1
    x1, y1, x2, y2 = grid_box((left, top, right, bottom), (width, height))
    assert 0 <= x1 < x2 <= 1000
    assert 0 <= y1 < y2 <= 1000
    assert x1 * width <= left * 1000
    assert x2 * width >= right * 1000
    assert y1 * height <= top * 1000
    assert y2 * height >= bottom * 1000


def test_masks_become_pixels_in_column_order() -> None:
    mask = np.zeros((3, 5), dtype=np.bool_)
    mask[2, 0] = mask[0, 4] = mask[1, 1:3] = True
    assert np.array_equal(mask_pixels(encode(mask)), mask)
