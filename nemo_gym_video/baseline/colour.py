# SPDX-License-Identifier: Apache-2.0
"""Colour as evidence: a histogram model of one object, and masks for the named colours."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.baseline.seen import Pixels
from nemo_gym_video.prepare.synthetic.questions import COLOURS

Mask = NDArray[np.bool_]

_BINS = (8, 32, 32)
# Hue is in OpenCV's half degrees. The named colours are at least 40 degrees apart.
# How many times the surroundings count: rather miss a pixel of the object than take in the ground.
_CAUTION = 4
_HUE_SLACK = 9
_MIN_SATURATION = 130
_MIN_VALUE = 70


def chroma(frame: Pixels) -> NDArray[np.uint8]:
    """Shares of red and green in a pixel's light, and its brightness, each 0..255; shape [height, width, 3].

    Shading changes the brightness of a surface and leaves the shares alone.
    """
    red, green, blue = cv2.split(cv2.GaussianBlur(frame, (3, 3), 0))
    total = red.astype(np.uint16) + green + blue
    scale = np.float32(255) / np.maximum(total, 1)
    brightness = cv2.max(cv2.max(red, green), blue)
    shares = [np.asarray(light * scale, np.uint8) for light in (red, green)]
    return np.asarray(cv2.merge([*shares, brightness]), np.uint8)


def chroma_bins(frame: Pixels) -> NDArray[np.int32]:
    """The histogram bin of every pixel, shape [height, width]."""
    red, green, brightness = cv2.split(chroma(frame))
    high = (brightness >> 5).astype(np.int32) << 10
    bins: NDArray[np.int32] = high + ((red >> 3).astype(np.int32) << 5) + (green >> 3)
    return bins


class ColourModel:
    """How likely a pixel's colour belongs to the object rather than to what surrounds it."""

    def __init__(self, bins: NDArray[np.int32], inside: Mask, outside: Mask) -> None:
        """Learn from one frame's ``chroma_bins``: pixels ``inside`` the object, and ``outside`` it."""
        front, back = _density(bins[inside]), _density(bins[outside])
        self._table = (front / (front + _CAUTION * back + 1e-7)).astype(np.float32)

    def posterior(self, bins: NDArray[np.int32]) -> NDArray[np.float32]:
        """Smoothed probability of being the object for every pixel of a frame."""
        return np.asarray(cv2.blur(self._table[bins], (3, 3)), np.float32)


def _density(values: NDArray[np.int32]) -> NDArray[np.float64]:
    """Histogram of bins as shares, smoothed over neighbouring brightness and chroma."""
    counts = np.bincount(values, minlength=int(np.prod(_BINS))).astype(np.float64).reshape(_BINS)
    smooth = 0.58 * counts
    smooth[1:] += 0.21 * counts[:-1]
    smooth[:-1] += 0.21 * counts[1:]
    layers = [cv2.GaussianBlur(layer, (7, 7), 0.8, borderType=cv2.BORDER_CONSTANT) for layer in smooth]
    return np.asarray(np.stack(layers).ravel() / max(1, values.size), np.float64)


def named_mask(frame: Pixels, colour: str) -> Mask:
    """Pixels of a named colour: hue within 18 degrees, saturated and not dark."""
    hsv = cv2.cvtColor(cv2.GaussianBlur(frame, (3, 3), 0), cv2.COLOR_RGB2HSV)
    wanted = int(cv2.cvtColor(np.array([[COLOURS[colour]]], np.uint8), cv2.COLOR_RGB2HSV)[0, 0, 0])
    distance = np.abs(hsv[..., 0].astype(np.int16) - wanted)
    distance = np.minimum(distance, 180 - distance)
    mask: Mask = (distance <= _HUE_SLACK) & (hsv[..., 1] >= _MIN_SATURATION) & (hsv[..., 2] >= _MIN_VALUE)
    return mask
