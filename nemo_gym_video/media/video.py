# SPDX-License-Identifier: Apache-2.0
"""Video frames by PyAV: exact by presentation time, displayed orientation, 8-bit RGB, only what is asked for.

Times are the stream's own presentation times in seconds, as ``ffprobe`` prints them: a clip that starts late has a
first time above zero (``start_time``). Size is the displayed size: the rotation of the display matrix is applied,
the sample aspect ratio is recorded and ignored, as engines do. Colours go through FFmpeg's scaler (bicubic chroma,
the matrix and range that the stream declares), the same pixels that OpenCV gives for 8-bit streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.policy import MediaLimits, check_pixels
from nemo_gym_video.media.sources import MediaBlob, blob_from_path
from nemo_gym_video.media.video_decode import Decoder, decode_errors, displayed, open_container, rotation
from nemo_gym_video.media.video_index import ClipIndex, build_index

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """What a clip is, without its pixels.

    ``size`` is (width, height) as displayed; ``fps`` frames a second (of a clip of variable rate: the average);
    ``total`` frames as the container presents them and ``decodable`` those the file really holds (fewer when it
    is truncated): sample over ``decodable``. ``duration_s`` and ``start_time`` are in seconds, ``rotation`` in
    degrees clockwise already applied to ``size``, ``mirrored`` whether it is also flipped left to right before
    that. ``timestamps`` [decodable] are presentation times in seconds.
    """

    size: tuple[int, int]
    fps: float
    total: int
    decodable: int
    duration_s: float
    start_time: float
    rotation: int
    mirrored: bool
    variable_rate: bool
    sample_aspect_ratio: tuple[int, int]
    container: str
    codec: str
    decoder: str
    timestamps: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFrame:
    """One frame as displayed: ``pixels`` uint8 [height, width, 3] RGB, ``timestamp`` in seconds."""

    index: int
    timestamp: float
    pixels: Pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFrames:
    """Frames in the order asked for. ``pixels`` is uint8 [n, height, width, 3] RGB; ``timestamps`` in seconds."""

    pixels: Pixels
    indices: tuple[int, ...]
    timestamps: tuple[float, ...]
    size: tuple[int, int]
    fps: float
    total: int
    decodable: int
    decoder: str


class VideoClip:
    """An open clip: its ``info``, and its frames on request. Made by ``open_clip``; not for several threads."""

    def __init__(self, decoder: Decoder, index: ClipIndex, info: VideoInfo, limits: MediaLimits) -> None:
        """Bind the parts; use ``open_clip``."""
        self._decoder = decoder
        self._index = index
        self._limits = limits
        self.info = info

    def iter_frames(self, indices: Sequence[int]) -> Iterator[VideoFrame]:
        """The frames of ``indices`` in presentation order, each once, one in memory at a time.

        Raises:
            MediaDecodeError: an index is out of range, or its frame cannot be decoded.
        """
        for index, pixels in self._views(_checked_indices(indices, self._index.total)):
            timestamp = float(self.info.timestamps[index])
            yield VideoFrame(index=index, timestamp=timestamp, pixels=np.array(pixels, order="C"))

    def read(self, indices: Sequence[int]) -> VideoFrames:
        """The frames of ``indices`` in the order asked for, repeats included."""
        asked = _checked_indices(indices, self._index.total)
        width, height = self.info.size
        size = len(asked) * width * height * 3
        if size > self._limits.max_read_bytes:
            raise MediaDecodeError(
                "frames asked for are too large together",
                code="media.too_large",
                got=f"{size} bytes",
                allowed=f"{self._limits.max_read_bytes} bytes; use iter_frames",
                where=self._decoder.where,
            )
        pixels = np.empty((len(asked), height, width, 3), np.uint8)
        places: dict[int, list[int]] = {}
        for place, index in enumerate(asked):
            places.setdefault(index, []).append(place)
        for index, view in self._views(asked):
            for place in places[index]:
                pixels[place] = view
        return VideoFrames(
            pixels=pixels,
            indices=tuple(asked),
            timestamps=tuple(float(self.info.timestamps[index]) for index in asked),
            size=self.info.size,
            fps=self.info.fps,
            total=self.info.total,
            decodable=self.info.decodable,
            decoder=self.info.decoder,
        )

    def _views(self, asked: Sequence[int]) -> Iterator[tuple[int, Pixels]]:
        with decode_errors(self._decoder.where):
            for index, frame in self._decoder.frames(self._index, sorted(set(asked))):
                yield index, displayed(frame, expected=self.info.size, where=self._decoder.where)


@contextmanager
def open_clip(
    source: MediaBlob | Path, *, limits: MediaLimits | None = None, where: Where | None = None
) -> Iterator[VideoClip]:
    """Open a clip that the policy let in (a blob), or a file the caller vouches for (a ``Path``).

    Raises:
        MediaDecodeError: no video in it, broken, empty, or over a limit.
    """
    limits = limits or MediaLimits()
    blob = blob_from_path(source, kind="video", limits=limits, where=where) if isinstance(source, Path) else source
    reopen = partial(open_container, blob, limits=limits, where=where)
    with reopen() as (container, stream):
        with decode_errors(where):
            decoder = Decoder(container, stream, reopen=reopen, where=where)
            index = decoder.settle(build_index(container, stream, limits=limits, where=where))
            if index.total == 0:
                raise MediaDecodeError(
                    "video has no frame that can be decoded", code="media.no_frames", where=where
                )
            _, first = next(iter(decoder.frames(index, [0])))
            info = _describe(container, stream, index, first)
        check_pixels(info.size, limits, where)
        if info.duration_s > limits.max_duration_s:
            raise MediaDecodeError("video is too long", code="media.too_large", got=f"{info.duration_s:.3f} s",
                                   allowed=f"{limits.max_duration_s} s", where=where)  # fmt: skip
        yield VideoClip(decoder, index, info, limits)


def probe_video(
    source: MediaBlob | Path, *, limits: MediaLimits | None = None, where: Where | None = None
) -> VideoInfo:
    """Describe a clip: demuxes it once and decodes its first frame. Raises as ``open_clip``."""
    with open_clip(source, limits=limits, where=where) as clip:
        return clip.info


def read_frames(
    source: MediaBlob | Path,
    indices: Sequence[int],
    *,
    limits: MediaLimits | None = None,
    where: Where | None = None,
) -> VideoFrames:
    """Decode the frames of ``indices`` in the order asked for. Raises as ``open_clip`` and ``iter_frames``."""
    with open_clip(source, limits=limits, where=where) as clip:
        return clip.read(indices)


def frames_between(info: VideoInfo, start_s: float, end_s: float) -> range:
    """Indices of the frames whose timestamps lie within [``start_s``, ``end_s``] seconds, to the microsecond."""
    tick = 1e-6
    first = int(np.searchsorted(info.timestamps, start_s - tick, side="left"))
    last = int(np.searchsorted(info.timestamps, end_s + tick, side="right"))
    return range(first, max(first, last))


def _checked_indices(indices: Sequence[int], total: int) -> list[int]:
    asked = [int(index) for index in indices]
    for index in asked:
        if not 0 <= index < total:
            raise MediaDecodeError(
                "frame is not in the clip", code="media.frame_index", got=index, allowed=f"0 to {total - 1}"
            )
    return asked


def _describe(container: Any, stream: Any, index: ClipIndex, first: Any) -> VideoInfo:
    import av  # start-up: PyAV, only where a video is opened

    base = Fraction(stream.time_base)
    # Integers up to 2**53 over an integer: the division rounds once, so a time is the float nearest to it.
    timestamps = np.asarray(index.pts * base.numerator / base.denominator, np.float64)
    fps, variable = _rate(stream, index, base)
    span = Fraction(int(index.pts[-1] - index.pts[0])) * base
    duration = float(span) + (index.last_duration * float(base) if index.last_duration else 1 / fps)
    turn, mirrored = rotation(first)
    width, height = (first.height, first.width) if turn % 180 else (first.width, first.height)
    aspect = Fraction(stream.sample_aspect_ratio or 1) or Fraction(1)
    declared = stream.frames - index.hidden if index.damaged else 0
    library = ".".join(str(part) for part in av.library_versions["libavcodec"])
    codec = stream.codec_context.codec.canonical_name
    return VideoInfo(
        size=(width, height),
        fps=fps,
        total=max(index.total, declared),
        decodable=index.total,
        duration_s=duration,
        start_time=float(timestamps[0]),
        rotation=turn,
        mirrored=mirrored,
        variable_rate=variable,
        sample_aspect_ratio=(aspect.numerator, aspect.denominator),
        container=container.format.name,
        codec=codec,
        decoder=f"PyAV {av.__version__}, libavcodec {library}, {stream.codec_context.name}",
        timestamps=timestamps,
    )


def _rate(stream: Any, index: ClipIndex, base: Fraction) -> tuple[float, bool]:
    """Frames a second, and whether the rate varies.

    A clip is of constant rate when every frame stands within one tick of its place at the rate that the container
    names; that rate is then exact. Otherwise the rate is the average: frames over the time they cover.
    """
    nominal = Fraction(stream.guessed_rate or stream.average_rate or 0)
    if index.total < 2:
        return (float(nominal) or 1.0), False
    since = (index.pts - index.pts[0]).astype(np.float64)
    steps = np.arange(index.total)
    if nominal > 0:
        period = float(1 / (nominal * base))
        if np.abs(since - steps * period).max() <= 1.0:
            return float(nominal), False
    period = since[-1] / steps[-1]
    even = bool(np.abs(since - steps * period).max() <= 1.0)
    last = period if even or not index.last_duration else index.last_duration
    return float(index.total / (since[-1] + last) / float(base)), not even
