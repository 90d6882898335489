# SPDX-License-Identifier: Apache-2.0
"""Finds the object that words name (``the red circle``) by hue and by the form of its outline, and follows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np

from nemo_gym_video.baseline.blobs import Blob, find_blobs
from nemo_gym_video.baseline.colour import Mask, named_mask
from nemo_gym_video.baseline.follow import Detection, follow_region
from nemo_gym_video.baseline.seen import Pixels

_MIN_SHARE = 0.001
_MAX_SHARE = 0.3

# Per shape: area / convex hull, area / smallest upright-or-turned rectangle, 4 pi area / perimeter squared.
_FORMS: dict[str, tuple[float, float, float]] = {
    "circle": (0.98, 0.79, 0.90),
    "square": (0.98, 0.95, 0.78),
    "triangle": (0.97, 0.51, 0.60),
    "star": (0.72, 0.52, 0.40),
    "cross": (0.72, 0.53, 0.36),
}


def locate(frames: Sequence[Pixels], colour: str, shape: str | None) -> list[Detection | None]:
    """Where the ``colour`` ``shape`` is in each frame; None where it cannot be seen.

    The clearest sighting of all frames is followed from there to the end and back to the start.
    """
    best: tuple[float, int, Blob] | None = None
    for index, frame in enumerate(frames):
        for blob in _candidates(named_mask(frame, colour)):
            score = _likeness(blob, shape) * math.sqrt(blob.area / frame[..., 0].size)
            score *= 0.5 if _touches_border(blob, frame) else 1.0
            if best is None or score > best[0]:
                best = score, index, blob
    if best is None:
        return [None] * len(frames)
    _, index, blob = best
    region = blob.paste(frames[index].shape)
    forward = follow_region(frames[index:], region)
    backward = follow_region(frames[index::-1], region)
    return [*reversed(backward[1:]), *forward]


def _candidates(mask: Mask) -> list[Blob]:
    whole = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8)) == 1
    blobs = find_blobs(whole, min_area=max(12.0, _MIN_SHARE * mask.size))
    return [blob for blob in blobs[:8] if blob.area <= _MAX_SHARE * mask.size]


def _likeness(blob: Blob, shape: str | None) -> float:
    """How well an area's outline fits a shape's numbers, 0..1; any compact area is as good without a shape."""
    outlines, _ = cv2.findContours(blob.mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outline = max(outlines, key=len)
    area = float(blob.area)
    hull = max(1.0, float(cv2.contourArea(cv2.convexHull(outline))))
    (_, (side_a, side_b), _) = cv2.minAreaRect(outline)
    length = max(1.0, float(cv2.arcLength(outline, True)))
    form = (area / hull, area / max(1.0, side_a * side_b), 4 * math.pi * area / length**2)
    wanted = [_FORMS[shape]] if shape in _FORMS else list(_FORMS.values())
    return max(math.exp(-sum((a - b) ** 2 for a, b in zip(form, one, strict=True)) / 0.05) for one in wanted)


def _touches_border(blob: Blob, frame: Pixels) -> bool:
    x1, y1, x2, y2 = blob.box
    return x1 == 0 or y1 == 0 or x2 == frame.shape[1] or y2 == frame.shape[0]
