# SPDX-License-Identifier: Apache-2.0
"""Designs and paints synthetic scenes: textured shapes that move, turn, grow, hide each other, enter and leave.

A scene is a pure function of its seed. Masks are exact because shapes are painted with hard edges: a pixel belongs
to the topmost shape whose outline holds its centre. Pixels are [h, w] arrays, x to the right, y down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.prepare.synthetic.questions import COLOURS, SHAPES

FPS = 24
"""Frames a second of every synthetic clip, as in SA-V."""

_TEXTURE_CELLS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """One moving shape. ``poses`` is float [frames, 4]: centre x, centre y, angle in radians, radius in pixels.

    ``texture`` is float [cells, cells], the brightness of each cell of the shape's own square.
    """

    colour: str
    shape: str
    poses: NDArray[np.float64]
    texture: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A clip to paint: displayed ``size`` (w, h), ``total`` frames, sprites from back to front."""

    size: tuple[int, int]
    total: int
    sprites: tuple[Sprite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpriteTiming:
    """When a sprite is there: enters at frame ``enter`` (0: there from the start), heads out at ``leave`` (None:
    stays to the end)."""

    enter: int = 0
    leave: int | None = None


def design_scene(
    seed: Sequence[int],
    *,
    size: tuple[int, int],
    total: int,
    timings: Sequence[SpriteTiming],
    speed: tuple[float, float] = (0.03, 0.05),
    radius: tuple[float, float] = (0.15, 0.19),
) -> Scene:
    """Draw one scene from ``seed``: one sprite a timing, colours all different.

    ``speed`` is the range of the movement a 6 fps step as a share of the width, ``radius`` the range of the radius
    as a share of the height.
    """
    rng = np.random.default_rng(list(seed))
    colours = rng.permutation(list(COLOURS))[: len(timings)]
    shapes = rng.choice(SHAPES, size=len(timings))
    sprites = []
    for timing, colour, shape in zip(timings, colours, shapes, strict=True):
        reach = float(rng.uniform(*radius)) * size[1]
        pace = float(rng.uniform(*speed)) * size[0] * 6 / FPS
        poses = _poses(rng, size=size, total=total, timing=timing, radius=reach, pace=pace)
        texture = rng.choice(np.array([0.5, 0.75, 1.0]), size=(_TEXTURE_CELLS, _TEXTURE_CELLS))
        sprites.append(Sprite(colour=str(colour), shape=str(shape), poses=poses, texture=texture))
    return Scene(size=size, total=total, sprites=tuple(sprites))


def _poses(
    rng: np.random.Generator,
    *,
    size: tuple[int, int],
    total: int,
    timing: SpriteTiming,
    radius: float,
    pace: float,
) -> NDArray[np.float64]:
    """A path that bounces off the borders, with a straight way in at ``enter`` and out at ``leave``."""
    extent = np.array(size, dtype=np.float64)
    low, high = np.full(2, radius * 0.9), extent - radius * 0.9
    position = rng.uniform(low, high)
    heading = _heading(rng)
    if timing.enter > 0:
        position, heading = _way_in(rng, extent=extent, radius=radius)
    angle, turn = rng.uniform(0, 2 * math.pi), rng.choice([-1, 1]) * rng.uniform(0.25, 0.75) / FPS
    swell, phase = rng.uniform(0.06, 0.14), rng.uniform(0, 2 * math.pi)
    poses = np.empty((total, 4))
    for frame in range(total):
        if frame < timing.enter:
            poses[frame] = (-4 * radius, -4 * radius, 0.0, radius)
            continue
        scale = 1 + swell * math.sin(phase + 2 * math.pi * frame / (3 * FPS))
        poses[frame] = (*position, angle + turn * frame, radius * scale)
        if timing.leave is not None and frame >= timing.leave:
            heading = _way_out(position, extent) if frame == timing.leave else heading
            position = position + heading * pace * 1.25
            continue
        position = position + heading * pace
        flip = ((position < low) & (heading < 0)) | ((position > high) & (heading > 0))
        heading = np.where(flip, -heading, heading)
    return poses


def _heading(rng: np.random.Generator) -> NDArray[np.float64]:
    # Kept off the axes: a purely horizontal path would meet the frame's centre line again and again.
    angle = rng.choice([0.0, 0.5, 1.0, 1.5]) * math.pi + rng.uniform(0.3, 1.2)
    return np.array([math.cos(angle), math.sin(angle)])


def _way_in(
    rng: np.random.Generator, *, extent: NDArray[np.float64], radius: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    side = int(rng.integers(4))
    along = float(rng.uniform(0.3, 0.7))
    axis, far = side % 2, side // 2
    start = extent * along
    start[axis] = extent[axis] + radius * 1.2 if far else -radius * 1.2
    inward = rng.uniform(-0.35, 0.35, size=2)
    inward[axis] = -1.0 if far else 1.0
    return start, inward / np.linalg.norm(inward)


def _way_out(position: NDArray[np.float64], extent: NDArray[np.float64]) -> NDArray[np.float64]:
    gaps = np.concatenate([position, extent - position])
    side = int(np.argmin(gaps))
    heading = np.zeros(2)
    heading[side % 2] = 1.0 if side >= 2 else -1.0
    return heading


def paint(
    scene: Scene, footage: Iterator[NDArray[np.uint8]]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    """Yield, for each frame, pixels uint8 [h, w, 3] RGB and visible masks bool [sprites, h, w].

    ``footage`` gives the background frames, uint8 [h, w, 3] of the scene's size.
    """
    for frame, background in zip(range(scene.total), footage, strict=False):
        pixels = background.copy()
        masks = np.zeros((len(scene.sprites), *pixels.shape[:2]), dtype=np.bool_)
        for index, sprite in enumerate(scene.sprites):
            _paint_sprite(pixels, masks, index, sprite, frame)
        yield pixels, masks


def _paint_sprite(
    pixels: NDArray[np.uint8], masks: NDArray[np.bool_], index: int, sprite: Sprite, frame: int
) -> None:
    x, y, angle, radius = sprite.poses[frame]
    height, width = masks.shape[1:]
    left, right = max(0, math.floor(x - radius)), min(width, math.ceil(x + radius) + 1)
    top, bottom = max(0, math.floor(y - radius)), min(height, math.ceil(y + radius) + 1)
    if left >= right or top >= bottom:
        return
    columns = (np.arange(left, right) + 0.5 - x) / radius
    lines = (np.arange(top, bottom) + 0.5 - y) / radius
    grid_x, grid_y = np.meshgrid(columns, lines)
    u = grid_x * math.cos(angle) + grid_y * math.sin(angle)
    v = grid_y * math.cos(angle) - grid_x * math.sin(angle)
    inside = outline(sprite.shape, u, v)
    cells = sprite.texture.shape[0]
    cell_u = np.clip(((u + 1) / 2 * cells).astype(np.int64), 0, cells - 1)
    cell_v = np.clip(((v + 1) / 2 * cells).astype(np.int64), 0, cells - 1)
    shade = sprite.texture[cell_v, cell_u][..., None] * np.array(COLOURS[sprite.colour])
    window = (slice(top, bottom), slice(left, right))
    pixels[window][inside] = shade[inside].astype(np.uint8)
    masks[(slice(0, index), *window)] &= ~inside
    masks[(index, *window)] = inside


def outline(shape: str, u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points of the shape's own plane lie inside it; every shape lies within the unit circle."""
    if shape == "circle":
        return u * u + v * v <= 0.81
    if shape == "square":
        return np.maximum(np.abs(u), np.abs(v)) <= 0.7
    if shape == "triangle":
        return (v <= 0.5) & (np.abs(u) * math.sqrt(3) - v <= 1.0)
    if shape == "cross":
        thin, long = np.minimum(np.abs(u), np.abs(v)), np.maximum(np.abs(u), np.abs(v))
        return (thin <= 0.3) & (long <= 0.92)
    distance, turn = np.hypot(u, v), np.arctan2(v, u)
    spoke = np.abs((turn * 5 / (2 * math.pi)) % 1 - 0.5) * 2
    return distance <= 0.55 + 0.43 * spoke
