# SPDX-License-Identifier: Apache-2.0
"""What may be opened and how large it may be: the values behind every decision of ``media/sources.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym_video.errors import MediaDecodeError, Where


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Upper bounds that are checked before anything is decoded.

    ``max_bytes`` bounds a video file, ``max_image_bytes`` an image file, ``max_data_bytes`` what a data URL or
    a network answer holds, each in bytes. ``max_pixels`` bounds width x height of an image or of one video
    frame (the default is one 8K frame). ``max_frames``, ``max_duration_s`` and ``max_streams`` bound a clip,
    ``max_read_bytes`` the RGB pixels that one call returns at once.
    """

    max_bytes: int = 4 << 30
    max_image_bytes: int = 64 << 20
    max_data_bytes: int = 256 << 20
    max_pixels: int = 1 << 25
    max_frames: int = 500_000
    max_duration_s: float = 6 * 3600.0
    max_streams: int = 16
    max_read_bytes: int = 2 << 30


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """Where media may come from: files below ``roots``, and data URLs.

    The network is off unless ``allow_hosts`` names hosts (``"media.example.org"``, exact, no wildcards); then
    ``media/network.py`` may fetch from them over https. ``timeout_s`` bounds one whole fetch.

    >>> from pathlib import Path
    >>> from nemo_gym_video import SourcePolicy
    >>> policy = SourcePolicy(roots=(Path("media"),))
    >>> policy.allow_hosts
    ()
    """

    roots: tuple[Path, ...] = ()
    limits: MediaLimits = field(default_factory=MediaLimits)
    allow_hosts: tuple[str, ...] = ()
    timeout_s: float = 30.0


def check_pixels(size: tuple[int, int], limits: MediaLimits, where: Where | None) -> None:
    """Refuse a (width, height) that is empty or over ``limits.max_pixels``, before any pixel is decoded."""
    width, height = size
    if width < 1 or height < 1:
        raise MediaDecodeError("media has no pixels", code="media.empty", got=f"{width}x{height}", where=where)
    if width * height > limits.max_pixels:
        raise MediaDecodeError("media has too many pixels", code="media.too_large", got=f"{width}x{height}",
                               allowed=f"{limits.max_pixels} pixels", where=where)  # fmt: skip
