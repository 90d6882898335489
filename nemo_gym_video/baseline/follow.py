# SPDX-License-Identifier: Apache-2.0
"""Follows one object through frames from a point or box in the first: flow, checked and helped by colour.

Lucas-Kanade flow of points on the object predicts where it went. When the object's colours stand out from the
rest of the picture they decide whether it is visible, correct drift, and find it again after it was hidden; when
they do not, the forward-backward check decides and a template search finds it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.baseline.blobs import Blob, Box, find_blobs, join
from nemo_gym_video.baseline.colour import ColourModel, Mask, chroma, chroma_bins
from nemo_gym_video.baseline.flow import Gray, Motion, Points, measure_motion, seed_points
from nemo_gym_video.baseline.seen import Pixels

# Around a point, chroma shares within this many of 255 belong to the object; brightness may differ much more.
_FLOOD_TOLERANCE = (18, 18, 130)
# An area larger than this share of the picture is ground, not an object.
_MAX_OBJECT_SHARE = 0.2
# Areas below this many pixels, or below this share of the object's own area, are noise.
_MIN_AREA = 12
_MIN_AREA_SHARE = 0.03
# What is taken for the hidden object come back has at least this share of its area.
_FOUND_AGAIN_SHARE = 0.2
# Probability above which a pixel counts as the object's.
_SURE = 0.5
# Least IoU of an area's bounds with the given box, and the places in a box from which areas are tried.
_MIN_FIT = 0.6
_SEEDS = tuple((across, down) for across in (0.5, 0.35, 0.65) for down in (0.5, 0.35, 0.65))
# Least normalised correlation of a template that is found again.
_TEMPLATE_SCORE = 0.85
# Share of points that must survive for flow to be believed at all, and to be believed before colour.
_MIN_SUPPORT = 0.3
_SURE_SUPPORT = 0.5


@dataclass(frozen=True, slots=True)
class Detection:
    """Where the object is in one frame: a point on it and its box, in pixels of the frame."""

    xy: tuple[float, float]
    box: Box


@dataclass(slots=True)
class _State:
    """What is known after a frame. While the object is ``lost``, ``found`` is where it would be."""

    found: Detection
    points: Points
    velocity: tuple[float, float] = (0.0, 0.0)
    lost: bool = False


def follow_point(frames: Sequence[Pixels], xy: tuple[float, float]) -> list[Detection | None]:
    """Follow what is at ``xy`` (pixels) in ``frames[0]`` through all frames; None where it cannot be seen."""
    region = _flood(frames[0], xy)
    return _Follower(frames[0], region, Detection(xy, _bounds(region)), grow=True).run(frames)


def follow_region(frames: Sequence[Pixels], region: Mask) -> list[Detection | None]:
    """Follow what ``region`` (bool [height, width], not empty) covers in ``frames[0]``."""
    blob = find_blobs(region, min_area=1)[0]
    return _Follower(frames[0], region, Detection(blob.interior(), _bounds(region)), grow=False).run(frames)


def follow_box(frames: Sequence[Pixels], box: Box) -> list[Detection | None]:
    """Follow what is in ``box`` (pixels) in ``frames[0]`` through all frames; None where it cannot be seen."""
    region = _region_in(frames[0], box)
    centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    return _Follower(frames[0], region, Detection(centre, box), grow=False).run(frames)


class _Follower:
    def __init__(self, first: Pixels, region: Mask, found: Detection, *, grow: bool) -> None:
        self._gray = _gray(first)
        bins = chroma_bins(first)
        self._learn(bins, region, found)
        own, strays = self._split(bins, found)
        if grow and own and region.sum() < own.area < _MAX_OBJECT_SHARE * bins.size:
            region = own.paste(region.shape)
            found = Detection(found.xy, own.box)
            self._learn(bins, region, found)
            own, strays = self._split(bins, found)
        self._area = 0 if own is None else own.area
        fits = own is not None and own.area < _MAX_OBJECT_SHARE * bins.size and _iou(own.box, found.box) > 0.5
        self._colour_here = fits
        self._colour_anywhere = fits and strays < self._area
        self._template = _cut(self._gray, found)
        self._state = _State(found, seed_points(self._gray, region))

    def run(self, frames: Sequence[Pixels]) -> list[Detection | None]:
        return [self._state.found, *(self._step(frame) for frame in frames[1:])]

    def _learn(self, bins: NDArray[np.int32], region: Mask, found: Detection) -> None:
        outside = ~_box_mask(region.shape, found.box, shrink=1.1) & ~region
        self._colour = ColourModel(bins, region, outside if outside.any() else ~region)

    def _split(self, bins: NDArray[np.int32], found: Detection) -> tuple[Blob | None, int]:
        """The object's area by colour, and how many pixels elsewhere look like it."""
        blobs = find_blobs(self._colour.posterior(bins) > _SURE, min_area=_MIN_AREA)
        own = [
            blob for blob in blobs if _overlap(blob.box, found.box) > 0.5 * blob.area or blob.contains(found.xy)
        ]
        strays = sum(blob.area for blob in blobs if blob not in own)
        return (join(own) if own else None), strays

    def _step(self, frame: Pixels) -> Detection | None:
        gray, state = _gray(frame), self._state
        motion = None if state.lost else measure_motion(self._gray, gray, state.points)
        self._gray = gray
        predicted = self._predict(motion)
        by_colour = self._by_colour(frame, predicted, motion) if self._colour_here else None
        if by_colour is not None and (by_colour[0] is not None or self._colour_anywhere):
            found, region = by_colour
        elif motion is not None and motion.support >= _MIN_SUPPORT and _inside(predicted.xy, gray):
            found, region = predicted, _box_mask(gray.shape, predicted.box, shrink=0.8)
        else:
            found, region = self._by_template(gray)
        if found is None:
            state.lost = True
            state.found = predicted if _inside(predicted.xy, gray) else state.found
            return None
        last = state.found.xy
        velocity = (0.0, 0.0) if state.lost else (found.xy[0] - last[0], found.xy[1] - last[1])
        self._state = _State(found, seed_points(gray, region), velocity)
        return found

    def _predict(self, motion: Motion | None) -> Detection:
        found, (dx, dy) = self._state.found, self._state.velocity
        if motion is not None:
            return Detection(motion.move(found.xy), motion.move_box(found.box))
        x1, y1, x2, y2 = found.box
        return Detection((found.xy[0] + dx, found.xy[1] + dy), (x1 + dx, y1 + dy, x2 + dx, y2 + dy))

    def _by_colour(
        self, frame: Pixels, predicted: Detection, motion: Motion | None
    ) -> tuple[Detection | None, Mask]:
        mask = self._colour.posterior(chroma_bins(frame)) > _SURE
        blobs = find_blobs(mask, min_area=max(_MIN_AREA, _MIN_AREA_SHARE * self._area))
        near = [blob for blob in blobs if _overlap(blob.box, predicted.box) > 0]
        if self._colour_anywhere:
            near = near or [blob for blob in blobs[:1] if blob.area >= _FOUND_AGAIN_SHARE * self._area]
        elif near and sum(blob.area for blob in near) > self._room_to_grow(near, mask) * self._area:
            near = []
        if not near:
            return None, mask
        chosen = join(near)
        self._area = max(self._area, min(chosen.area, 2 * self._area))
        places = [_transfer(self._state.found, chosen.box), predicted.xy]
        if motion is not None and motion.support >= _SURE_SUPPORT:
            places.reverse()
        xy = next((place for place in places if chosen.contains(place)), near[0].interior())
        return Detection(xy, chosen.box), chosen.paste(mask.shape)

    def _room_to_grow(self, blobs: list[Blob], frame: Mask) -> float:
        """How many times its area an object may have in the next frame: more while it comes in over the border."""
        x1, y1, x2, y2 = join(blobs).box
        return 6.0 if x1 == 0 or y1 == 0 or x2 == frame.shape[1] or y2 == frame.shape[0] else 2.5

    def _by_template(self, gray: Gray) -> tuple[Detection | None, Mask]:
        height, width = self._template.shape
        if height > gray.shape[0] or width > gray.shape[1] or self._template.std() < 4:
            return None, np.zeros(gray.shape, bool)
        scores = cv2.matchTemplate(gray, self._template, cv2.TM_CCOEFF_NORMED)
        _, best, _, (left, top) = cv2.minMaxLoc(scores)
        box = (float(left), float(top), float(left + width), float(top + height))
        if best < _TEMPLATE_SCORE:
            return None, np.zeros(gray.shape, bool)
        return Detection((left + width / 2, top + height / 2), box), _box_mask(gray.shape, box, shrink=0.8)


def _transfer(found: Detection, box: Box | tuple[int, int, int, int]) -> tuple[float, float]:
    """Where the point of ``found`` is when its box has become ``box``."""
    x1, y1, x2, y2 = found.box
    across, down = (found.xy[0] - x1) / max(1e-6, x2 - x1), (found.xy[1] - y1) / max(1e-6, y2 - y1)
    return box[0] + across * (box[2] - box[0]), box[1] + down * (box[3] - box[1])


def _flood(frame: Pixels, xy: tuple[float, float]) -> Mask:
    """The area of like chroma around a point; a small disc when it would be a large part of the picture."""
    height, width = frame.shape[:2]
    values = np.ascontiguousarray(chroma(frame))
    start = min(width - 1, max(0, int(xy[0]))), min(height - 1, max(0, int(xy[1])))
    filled = np.zeros((height + 2, width + 2), np.uint8)
    around = values[max(0, start[1] - 3) : start[1] + 4, max(0, start[0] - 3) : start[0] + 4]
    values[start[1], start[0]] = np.median(around.reshape(-1, 3), axis=0)
    cv2.floodFill(
        values,
        filled,
        start,
        0,
        _FLOOD_TOLERANCE,
        _FLOOD_TOLERANCE,
        cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE,
    )
    region: Mask = filled[1:-1, 1:-1] == 1
    if _MIN_AREA <= region.sum() <= _MAX_OBJECT_SHARE * region.size:
        return region
    disc = np.zeros((height, width), np.uint8)
    cv2.circle(disc, start, max(6, round(0.02 * max(height, width))), 1, -1)
    return np.asarray(disc == 1)


def _region_in(frame: Pixels, box: Box) -> Mask:
    """The area of one object's colours that fits a box best, else the middle of the box."""
    best, best_fit = _box_mask(frame.shape, box, shrink=0.7), _MIN_FIT
    bins = chroma_bins(frame)
    outside = ~_box_mask(frame.shape, box, shrink=1.1)
    for across, down in _SEEDS:
        region = _flood(frame, (box[0] + across * (box[2] - box[0]), box[1] + down * (box[3] - box[1])))
        region &= ~outside
        if not region.any() or not outside.any():
            continue
        likely = (ColourModel(bins, region, outside).posterior(bins) > _SURE) & ~outside
        fit = _iou(_bounds(likely), box) if likely.any() else 0.0
        if fit > best_fit:
            best, best_fit = likely, fit
        if best_fit > 0.9:
            break
    return best


def _bounds(mask: Mask) -> Box:
    rows, columns = np.nonzero(mask)
    return float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1)


def _box_mask(shape: tuple[int, ...], box: Box, *, shrink: float) -> Mask:
    x, y, half_w, half_h = (
        (box[0] + box[2]) / 2,
        (box[1] + box[3]) / 2,
        (box[2] - box[0]) / 2,
        (box[3] - box[1]) / 2,
    )
    mask = np.zeros(shape[:2], bool)
    top, bottom = round(y - half_h * shrink), round(y + half_h * shrink)
    left, right = round(x - half_w * shrink), round(x + half_w * shrink)
    mask[max(0, top) : max(0, bottom, top + 1), max(0, left) : max(0, right, left + 1)] = True
    return mask


def _cut(gray: Gray, found: Detection) -> Gray:
    """The pixels of the object's box, at least 29 on a side and at most 61, as a template."""
    height, width = gray.shape
    half_w = min(30, max(14, round((found.box[2] - found.box[0]) / 2)))
    half_h = min(30, max(14, round((found.box[3] - found.box[1]) / 2)))
    x, y = min(width - 1, max(0, int(found.xy[0]))), min(height - 1, max(0, int(found.xy[1])))
    return gray[max(0, y - half_h) : y + half_h + 1, max(0, x - half_w) : x + half_w + 1].copy()


def _gray(frame: Pixels) -> Gray:
    return np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), np.uint8)


def _inside(xy: tuple[float, float], gray: Gray) -> bool:
    return bool(0 <= xy[0] < gray.shape[1] and 0 <= xy[1] < gray.shape[0])


def _overlap(a: Box | tuple[int, int, int, int], b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _iou(a: Box | tuple[int, int, int, int], b: Box) -> float:
    both = _overlap(a, b)
    return both / max(1e-9, (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
