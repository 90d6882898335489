# SPDX-License-Identifier: Apache-2.0
"""Pyramidal Lucas-Kanade flow with a forward-backward check, and the motion that its survivors agree on."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.baseline.blobs import Box
from nemo_gym_video.baseline.colour import Mask

Gray = NDArray[np.uint8]
Points = NDArray[np.float32]
"""Shape [n, 2], x and y in pixels."""

_WINDOW = (21, 21)
_LEVELS = 4
_MAX_ROUND_TRIP = 1.0
_MIN_SURVIVORS = 4
_MAX_POINTS = 60


@dataclass(frozen=True, slots=True)
class Motion:
    """A similarity between two frames, ``matrix`` float [2, 3]; ``survivors`` of ``asked`` points agree on it."""

    matrix: NDArray[np.float64]
    points: Points
    survivors: int
    asked: int

    @property
    def support(self) -> float:
        """Share of the points that survived."""
        return self.survivors / max(1, self.asked)

    def move(self, xy: tuple[float, float]) -> tuple[float, float]:
        """Where the motion takes a point."""
        x, y = self.matrix @ np.array([*xy, 1.0])
        return float(x), float(y)

    def move_box(self, box: Box) -> Box:
        """Translate a box by its centre and scale it; a turn leaves it upright."""
        centre = self.move(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        scale = float(np.hypot(self.matrix[0, 0], self.matrix[1, 0]))
        half = (box[2] - box[0]) / 2 * scale, (box[3] - box[1]) / 2 * scale
        return centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]


def seed_points(gray: Gray, mask: Mask) -> Points:
    """Up to 60 corners inside ``mask``; where it has too little texture, a grid fills up."""
    corners = cv2.goodFeaturesToTrack(gray, _MAX_POINTS, 0.01, 3, mask=mask.astype(np.uint8))
    points = np.zeros((0, 2), np.float32) if corners is None else corners.reshape(-1, 2)
    rows, columns = np.nonzero(mask)
    missing = _MAX_POINTS // 2 - len(points)
    if missing > 0 and len(rows):
        step = max(1, len(rows) // missing)
        grid = np.stack([columns[::step], rows[::step]], axis=1).astype(np.float32)
        points = np.concatenate([points, grid[:missing]])
    return np.ascontiguousarray(points, np.float32)


def measure_motion(before: Gray, after: Gray, points: Points) -> Motion | None:
    """The motion of ``points`` from one frame to the next; None when too few survive the round trip."""
    if len(points) < _MIN_SURVIVORS:
        return None
    there, found, _ = cv2.calcOpticalFlowPyrLK(before, after, points, None, winSize=_WINDOW, maxLevel=_LEVELS)
    back, returned, _ = cv2.calcOpticalFlowPyrLK(after, before, there, None, winSize=_WINDOW, maxLevel=_LEVELS)
    trip = np.linalg.norm(points - back, axis=1)
    kept = (found[:, 0] == 1) & (returned[:, 0] == 1) & (trip < _MAX_ROUND_TRIP)
    source, target = points[kept], there[kept]
    if len(source) < _MIN_SURVIVORS:
        return None
    matrix, inliers = cv2.estimateAffinePartial2D(source, target, ransacReprojThreshold=2.5)
    if matrix is None or int(inliers.sum()) < _MIN_SURVIVORS or not 0.6 < np.hypot(*matrix[:, 0]) < 1.6:
        return None
    agreeing = inliers[:, 0] == 1
    return Motion(np.asarray(matrix, np.float64), target[agreeing], int(agreeing.sum()), len(points))
