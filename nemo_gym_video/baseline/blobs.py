# SPDX-License-Identifier: Apache-2.0
"""Connected areas of a mask, and points that lie surely inside them."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.baseline.colour import Mask

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 in pixels, right and bottom edges outside."""


@dataclass(frozen=True, slots=True, eq=False)
class Blob:
    """One connected area: ``box`` in pixels, ``area`` in pixels, ``mask`` cropped to the box."""

    box: tuple[int, int, int, int]
    area: int
    mask: Mask

    @property
    def centre(self) -> tuple[float, float]:
        """Centre of the box."""
        return (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2

    def contains(self, xy: tuple[float, float]) -> bool:
        """Whether the pixel at ``xy`` belongs to the area."""
        column, row = int(xy[0]) - self.box[0], int(xy[1]) - self.box[1]
        height, width = self.mask.shape
        return 0 <= row < height and 0 <= column < width and bool(self.mask[row, column])

    def paste(self, shape: tuple[int, ...]) -> Mask:
        """The area as a mask of a whole frame of ``shape``."""
        whole = np.zeros(shape[:2], bool)
        whole[self.box[1] : self.box[3], self.box[0] : self.box[2]] = self.mask
        return whole

    def interior(self) -> tuple[float, float]:
        """The centre of the pixel that is farthest from the area's edge."""
        padded = np.pad(self.mask, 1).astype(np.uint8)
        row, column = np.unravel_index(int(cv2.distanceTransform(padded, cv2.DIST_L2, 5).argmax()), padded.shape)
        return self.box[0] + float(column) - 0.5, self.box[1] + float(row) - 0.5


def find_blobs(mask: Mask, *, min_area: float) -> list[Blob]:
    """The connected areas of at least ``min_area`` pixels, largest first."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    return sorted(
        (_blob(labels, stats[index], index) for index in range(1, count) if stats[index][4] >= min_area),
        key=lambda blob: -blob.area,
    )


def _blob(labels: NDArray[np.int32], row: NDArray[np.int32], index: int) -> Blob:
    x, y, width, height, area = (int(value) for value in row)
    return Blob((x, y, x + width, y + height), area, labels[y : y + height, x : x + width] == index)


def join(blobs: list[Blob]) -> Blob:
    """One blob of all the areas, for an object that something in front cuts into pieces."""
    x1, y1 = min(blob.box[0] for blob in blobs), min(blob.box[1] for blob in blobs)
    x2, y2 = max(blob.box[2] for blob in blobs), max(blob.box[3] for blob in blobs)
    mask = np.zeros((y2 - y1, x2 - x1), bool)
    for blob in blobs:
        left, top, right, bottom = blob.box
        mask[top - y1 : bottom - y1, left - x1 : right - x1] |= blob.mask
    return Blob((x1, y1, x2, y2), sum(blob.area for blob in blobs), mask)
