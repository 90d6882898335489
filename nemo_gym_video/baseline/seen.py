# SPDX-License-Identifier: Apache-2.0
"""What the policies see: messages whose media parts are decoded pixels, never files or URLs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
"""One frame, uint8 RGB of shape [height, width, 3]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMedia:
    """One opened media item as the processor took it in.

    ``frames`` are pixels, scaled down for the policies; ``size`` is the displayed (width, height) in pixels before
    that, on which counts depend. ``timestamps`` are seconds and ``indices`` source frame numbers of the sampled
    frames, ``fps`` source frames a second. An image has one frame at time 0.
    """

    kind: Literal["image", "video"]
    frames: tuple[Pixels, ...]
    size: tuple[int, int]
    indices: tuple[int, ...] = (0,)
    timestamps: tuple[float, ...] = (0.0,)
    fps: float = 1.0

    @property
    def nbytes(self) -> int:
        """Bytes that the pixels take in memory."""
        return sum(frame.nbytes for frame in self.frames)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """One message: role and parts in order, text as ``str``."""

    role: str
    parts: tuple[str | SeenMedia, ...]

    @property
    def text(self) -> str:
        """All text of the message, joined with newlines."""
        return "\n".join(part for part in self.parts if isinstance(part, str))


def like_first(frames: Sequence[Pixels]) -> list[Pixels]:
    """``frames`` scaled to the size of the first, as flow needs them; frames of one size are left alone."""
    import cv2  # extra: baseline

    if not frames:
        return []
    height, width = frames[0].shape[:2]
    return [
        frame if frame.shape[:2] == (height, width) else np.asarray(cv2.resize(frame, (width, height)), np.uint8)
        for frame in frames
    ]


def text_of(messages: Sequence[SeenMessage]) -> str:
    """What the user side said: all text that the model did not write itself, joined with newlines."""
    return "\n".join(message.text for message in messages if message.role != "assistant")
