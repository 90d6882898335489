# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest

from nemo_gym_video.prepare.synthetic.backgrounds import rendered
from nemo_gym_video.prepare.synthetic.clips import default_scene
from nemo_gym_video.prepare.synthetic.questions import COLOURS
from nemo_gym_video.prepare.synthetic.scene import Scene, Sprite, SpriteTiming, design_scene, outline, paint


def still(shape: str, *, x: float, y: float, radius: float, colour: str = "red", angle: float = 0.0) -> Sprite:
    return Sprite(colour=colour, shape=shape, poses=np.array([[x, y, angle, radius]]), texture=np.ones((2, 2)))


def painted(*sprites: Sprite, size: tuple[int, int] = (120, 100)) -> tuple[np.ndarray, np.ndarray]:
    scene = Scene(size=size, total=1, sprites=sprites)
    return next(paint(scene, rendered([1], size=size)))


@pytest.mark.parametrize(
    ("shape", "area"),
    [
        ("circle", 0.81 * math.pi),
        ("square", 1.4 * 1.4),
        ("triangle", 3 * math.sqrt(3) / 4),
        ("cross", 2 * 0.6 * 1.84 - 0.36),
    ],
)
@pytest.mark.parametrize("angle", [0.0, 0.4, 2.0])
def test_a_shapes_mask_has_its_area(shape: str, area: float, angle: float) -> None:
    _, masks = painted(still(shape, x=60, y=50, radius=40, angle=angle))
    assert masks[0].sum() == pytest.approx(area * 40 * 40, rel=0.02)


@pytest.mark.parametrize("shape", ["circle", "square", "triangle", "cross", "star"])
def test_a_shape_lies_in_its_circle_around_its_centre(shape: str) -> None:
    v, u = np.mgrid[-1.5:1.5:301j, -1.5:1.5:301j]
    inside = outline(shape, u, v)
    assert inside[150, 150]
    assert not inside[np.hypot(u, v) > 1.001].any()


def test_the_upper_shape_hides_the_lower_and_no_pixel_has_two_owners() -> None:
    low, high = still("square", x=50, y=50, radius=30), still("circle", x=65, y=50, radius=20, colour="blue")
    pixels, masks = painted(low, high)
    alone = painted(low)[1][0]
    assert not (masks[0] & masks[1]).any()
    assert np.array_equal(masks[0] | (masks[1] & alone), alone)
    assert (pixels[masks[0]] == COLOURS["red"]).all()
    assert (pixels[masks[1]] == COLOURS["blue"]).all()


def test_a_shape_outside_the_frame_has_an_empty_mask_and_leaves_the_picture_alone() -> None:
    pixels, masks = painted(still("circle", x=-50, y=50, radius=20))
    assert not masks.any()
    assert np.array_equal(pixels, next(rendered([1], size=(120, 100))))


def test_a_shape_across_the_border_is_cut_there() -> None:
    _, masks = painted(still("square", x=0, y=50, radius=20))
    assert masks[0].sum() == pytest.approx(0.5 * 28 * 28, rel=0.08)


@pytest.mark.parametrize("seed", range(8))
def test_movement_stays_below_six_per_cent_a_step_and_adds_up(seed: int) -> None:
    scene = default_scene([seed], size=(320, 180), seconds=4.5)
    for sprite in scene.sprites:
        here = (sprite.poses[:, 0] > -100) | (sprite.poses[:, 1] > -100)
        steps = np.hypot(*np.diff(sprite.poses[here][::4, :2], axis=0).T)
        assert steps.max() < 0.065 * 320
        assert steps.sum() > 0.4 * 320


@pytest.mark.parametrize("seed", range(8))
def test_plans_hold(seed: int) -> None:
    size, total = (160, 90), 96
    timings = [SpriteTiming(), SpriteTiming(leave=48), SpriteTiming(enter=40)]
    scene = design_scene([seed], size=size, total=total, timings=timings)
    seen = np.stack([m.any(axis=(1, 2)) for _, m in paint(scene, rendered([seed], size=size))])
    drawn = [
        np.stack(
            [m[0].any() for _, m in paint(Scene(size=size, total=total, sprites=(one,)), rendered([0], size=size))]
        )
        for one in scene.sprites
    ]
    assert drawn[0].all()
    assert drawn[1][:48].all()
    assert not drawn[1][-8:].any()
    assert not drawn[2][:40].any()
    assert drawn[2][-20:].all()
    assert not (seen & ~np.stack(drawn, axis=1)).any()


def test_one_seed_gives_one_scene_and_another_seed_another() -> None:
    first, again = (default_scene([3], size=(160, 90), seconds=3) for _ in range(2))
    other = default_scene([4], size=(160, 90), seconds=3)
    assert all(np.array_equal(a.poses, b.poses) for a, b in zip(first.sprites, again.sprites, strict=True))
    assert not all(np.array_equal(a.poses, b.poses) for a, b in zip(first.sprites, other.sprites, strict=True))


def test_colour_words_are_far_apart_in_hue() -> None:
    hues = sorted(colorsys.rgb_to_hsv(*(part / 255 for part in rgb))[0] * 360 for rgb in COLOURS.values())
    gaps = np.diff([*hues, hues[0] + 360])
    assert gaps.min() > 30
