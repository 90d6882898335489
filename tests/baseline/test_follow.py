# SPDX-License-Identifier: Apache-2.0
"""Tracking against motion that is known because it was painted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nemo_gym_video.baseline.blobs import find_blobs, join
from nemo_gym_video.baseline.flow import measure_motion, seed_points
from nemo_gym_video.baseline.follow import follow_box, follow_point, follow_region

Pixels = NDArray[np.uint8]
SIZE = (320, 180)
RED = (222, 38, 38)


@pytest.fixture
def ground(textured: Callable[..., Pixels]) -> Pixels:
    return textured(1, SIZE)


def grey_patch(textured: Callable[..., Pixels]) -> Pixels:
    """A patch that differs from the ground in texture alone."""
    return textured(7, (48, 40))


def red_patch(_: Callable[..., Pixels]) -> Pixels:
    shade = np.random.default_rng(3).choice([0.5, 0.75, 1.0], size=(5, 6))
    return np.asarray(np.kron(shade, np.ones((8, 8)))[..., None] * np.array(RED), np.uint8)


def paste(ground: Pixels, patch: Pixels, x: int, y: int) -> Pixels:
    frame = ground.copy()
    height, width = patch.shape[:2]
    left, top = max(0, x), max(0, y)
    right, bottom = min(SIZE[0], x + width), min(SIZE[1], y + height)
    if left < right and top < bottom:
        frame[top:bottom, left:right] = patch[top - y : bottom - y, left - x : right - x]
    return frame


PATH = [(40 + 9 * step, 30 + 5 * step) for step in range(16)]
PATCHES = pytest.mark.parametrize("make_patch", [grey_patch, red_patch])


@PATCHES
def test_a_point_keeps_its_place_on_a_moving_object(
    ground: Pixels, textured: Callable[..., Pixels], make_patch: Callable[..., Pixels]
) -> None:
    patch = make_patch(textured)
    found = follow_point([paste(ground, patch, x, y) for x, y in PATH], (40 + 24, 30 + 20))
    for (x, y), place in zip(PATH, found, strict=True):
        assert place is not None
        assert np.hypot(place.xy[0] - x - 24, place.xy[1] - y - 20) < 4


@PATCHES
def test_a_box_moves_with_its_object(
    ground: Pixels, textured: Callable[..., Pixels], make_patch: Callable[..., Pixels]
) -> None:
    patch = make_patch(textured)
    found = follow_box([paste(ground, patch, x, y) for x, y in PATH], (40.0, 30.0, 88.0, 70.0))
    for (x, y), place in zip(PATH, found, strict=True):
        assert place is not None
        assert place.box == pytest.approx((x, y, x + 48, y + 40), abs=5)


@PATCHES
def test_what_is_gone_is_absent_and_found_when_it_is_back(
    ground: Pixels, textured: Callable[..., Pixels], make_patch: Callable[..., Pixels]
) -> None:
    patch = make_patch(textured)
    hidden = range(5, 9)
    frames = [ground if step in hidden else paste(ground, patch, x, y) for step, (x, y) in enumerate(PATH)]
    found = follow_point(frames, (64, 50))
    assert [step for step, place in enumerate(found) if place is None] == list(hidden)
    back = found[-1]
    assert back is not None
    assert np.hypot(back.xy[0] - PATH[-1][0] - 24, back.xy[1] - PATH[-1][1] - 20) < 8


def test_an_object_that_stays_is_never_absent(ground: Pixels, textured: Callable[..., Pixels]) -> None:
    """The twin: nothing is hidden here, so nothing may be called hidden."""
    frames = [paste(ground, red_patch(textured), 60, 60)] * 8
    assert None not in follow_point(frames, (84, 80))


def test_an_object_that_leaves_the_picture_is_absent(ground: Pixels, textured: Callable[..., Pixels]) -> None:
    patch = red_patch(textured)
    frames = [paste(ground, patch, 240 + 20 * step, 60) for step in range(10)]
    found = follow_point(frames, (264, 80))
    assert all(place is not None for place in found[:3])
    assert found[4:] == [None] * 6


def test_a_region_can_be_followed_backwards(ground: Pixels, textured: Callable[..., Pixels]) -> None:
    frames = [paste(ground, red_patch(textured), x, y) for x, y in PATH]
    region = np.zeros(frames[0].shape[:2], bool)
    x, y = PATH[-1]
    region[y : y + 40, x : x + 48] = True
    found = follow_region(frames[::-1], region)
    assert all(place is not None for place in found)
    last: Any = found[-1]
    assert last.box == pytest.approx((40, 30, 88, 70), abs=4)


def test_flow_measures_turn_and_growth(textured: Callable[..., Pixels]) -> None:
    import cv2

    before = cv2.cvtColor(textured(2, SIZE), cv2.COLOR_RGB2GRAY)
    turn = cv2.getRotationMatrix2D((160, 90), 4, 1.05)
    after = cv2.warpAffine(before, turn, SIZE)
    mask = np.zeros(before.shape, bool)
    mask[40:140, 80:240] = True
    motion = measure_motion(before, after, seed_points(before, mask))
    assert motion is not None
    assert motion.matrix == pytest.approx(turn, abs=0.5)
    assert motion.support > 0.8


def test_unrelated_frames_have_no_motion(textured: Callable[..., Pixels]) -> None:
    import cv2

    before, after = (cv2.cvtColor(textured(seed, SIZE), cv2.COLOR_RGB2GRAY) for seed in (2, 9))
    motion = measure_motion(before, after, seed_points(before, np.ones(before.shape, bool)))
    assert motion is None or motion.support < 0.3


def test_too_few_points_have_no_motion(textured: Callable[..., Pixels]) -> None:
    frame = textured(2, SIZE)[..., 0].copy()
    assert measure_motion(frame, frame, np.zeros((3, 2), np.float32)) is None


@pytest.mark.parametrize("xy", [(0, 0), (319.9, 179.9), (320, 180), (0, 90)])
def test_points_on_the_border_are_followed_without_error(ground: Pixels, xy: tuple[float, float]) -> None:
    assert len(follow_point([ground] * 3, xy)) == 3


@pytest.mark.parametrize("box", [(0, 0, 0.2, 0.2), (319.9, 179.9, 320, 180), (0, 0, 320, 180), (10, 10, 11, 170)])
def test_odd_boxes_are_followed_without_error(ground: Pixels, box: tuple[float, float, float, float]) -> None:
    assert len(follow_box([ground] * 3, box)) == 3


@pytest.mark.parametrize("shape", [(1, 1), (4, 700), (700, 4), (20, 20)])
def test_odd_frames_are_followed_without_error(shape: tuple[int, int]) -> None:
    flat = np.full((*shape, 3), 128, np.uint8)
    assert len(follow_point([flat] * 3, (0.5, 0.5))) == 3
    assert len(follow_box([flat] * 3, (0, 0, shape[1], shape[0]))) == 3


def test_blobs_know_what_is_inside_them() -> None:
    mask = np.zeros((20, 30), bool)
    mask[2:12, 3:15] = True
    mask[15:18, 20:26] = True
    large, small = find_blobs(mask, min_area=1)
    assert (large.box, large.area, small.box) == ((3, 2, 15, 12), 120, (20, 15, 26, 18))
    assert large.contains(large.interior())
    assert not large.contains((15.5, 5))
    assert join([large, small]).box == (3, 2, 26, 18)
    assert (join([large, small]).paste(mask.shape) == mask).all()
    assert [blob.area for blob in find_blobs(mask, min_area=19)] == [120]


def test_the_interior_of_a_ring_is_on_the_ring() -> None:
    rows, columns = np.mgrid[:41, :41]
    distance = np.hypot(rows - 20, columns - 20)
    (ring,) = find_blobs((distance > 12) & (distance < 18), min_area=1)
    assert ring.contains(ring.interior())
    assert not ring.contains(ring.centre)
