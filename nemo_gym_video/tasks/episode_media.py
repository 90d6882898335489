# SPDX-License-Identifier: Apache-2.0
"""What an episode may do with media: open clips that the source policy lets in, and show frames from the store."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.errors import Where
from nemo_gym_video.media.policy import MediaLimits
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.media.video import VideoFrames, VideoInfo
from nemo_gym_video.messages import FrameManifest, image_part, video_part

Pixels = NDArray[np.uint8]

_TICKS = 90_000


class VideoDecoder(Protocol):
    """Describes and reads clips: the functions of ``media.video``, or a ``BoundedDecoder`` in a server."""

    def probe_video(
        self, blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None
    ) -> VideoInfo:
        """Describe a clip."""

    def read_frames(
        self, blob: MediaBlob, indices: Sequence[int], *, limits: MediaLimits | None = None
    ) -> VideoFrames:
        """Decode the frames at ``indices``."""


@dataclass(frozen=True)
class ClipFootage:
    """A clip that the source policy let in. Holds no descriptor between reads."""

    blob: MediaBlob
    info: VideoInfo
    limits: MediaLimits
    decoder: VideoDecoder

    @classmethod
    def open(
        cls,
        sources: MediaSources,
        url: str,
        *,
        limits: MediaLimits,
        decoder: VideoDecoder,
        where: Where | None = None,
    ) -> ClipFootage:
        """Let ``url`` in and describe it. Raises ``MediaSourceError`` or ``MediaDecodeError``."""
        blob = sources.open(url, kind="video", where=where)
        return cls(blob, decoder.probe_video(blob, limits=limits, where=where), limits, decoder)

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Presentation times in seconds, one for each frame."""
        return tuple(float(time) for time in self.info.timestamps)

    @property
    def end_s(self) -> float:
        """When the last frame ends, seconds."""
        return self.info.start_time + self.info.duration_s

    def read(self, indices: Sequence[int]) -> Pixels:
        """RGB frames [n, h, w, 3] at ``indices``, in that order."""
        return self.decoder.read_frames(self.blob, indices, limits=self.limits).pixels


@dataclass(frozen=True)
class StoreWriter:
    """Writes shown frames once each into a content store that the engine may read."""

    store: ContentStore

    def image(self, frame: Pixels) -> str:
        """The file URI of one frame as PNG."""
        return self._png(frame).as_uri()

    def manifest(self, frames: Pixels) -> str:
        """A cached-frame manifest URL over the frames as PNG."""
        return FrameManifest(frame_paths=tuple(str(self._png(frame)) for frame in frames)).to_url()

    def clip(self, frames: Pixels, times: Sequence[float]) -> str:
        """The file URI of an H.264 clip of the frames, with their distances in time kept, starting at 0."""
        return self.store.put(encode_clip(frames, times), suffix=".mp4").path.absolute().as_uri()

    def _png(self, frame: Pixels) -> Path:
        from PIL import Image  # start-up: scoring workers open no picture

        data = io.BytesIO()
        Image.fromarray(frame).save(data, "PNG", compress_level=1)
        return self.store.put(data.getvalue(), suffix=".png").path.absolute()


@dataclass(frozen=True)
class EpisodeMedia(StoreWriter):
    """What a task's episode gets: ``open`` clips by reference, and write what is shown (see ``StoreWriter``).

    What is written lies in the media store, where the agent and the engine may read it.
    """

    sources: MediaSources
    limits: MediaLimits
    decoder: VideoDecoder

    def open(self, url: str, *, where: Where | None = None) -> ClipFootage:
        """A clip by path, file URI, data URL or allowed https URL.

        Raises:
            MediaSourceError: the source policy refuses it.
            MediaDecodeError: it is broken, or over a limit.
        """
        return ClipFootage.open(self.sources, url, limits=self.limits, decoder=self.decoder, where=where)

    def still(self, frame: Pixels) -> dict[str, Any]:
        """The typed part of one frame [h, w, 3]."""
        return image_part(self.image(frame))

    def video(self, frames: Pixels, times: Sequence[float] | None = None) -> dict[str, Any]:
        """The typed part of frames [n, h, w, 3]: cached frames, or with ``times`` (seconds) a clip."""
        return video_part(self.manifest(frames) if times is None else self.clip(frames, times))


def encode_clip(frames: Pixels, times: Sequence[float]) -> bytes:
    """An mp4 of ``frames`` [n, h, w, 3] presented at ``times`` (seconds, ascending), the first moved to 0.

    The last frame lasts as long as the one before it. Sides of odd length keep their size (4:4:4 chroma).
    """
    import av  # start-up: scoring workers open no clip

    height, width = frames.shape[1:3]
    ticks = [round((time - times[0]) * _TICKS) for time in times]
    gaps = [after - before for before, after in pairwise(ticks)] or [_TICKS]
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(_TICKS, max(1, min(gaps))))
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuv420p" if width % 2 == 0 and height % 2 == 0 else "yuv444p"
        stream.options = {"crf": "10", "preset": "veryfast", "bf": "0"}
        stream.codec_context.time_base = Fraction(1, _TICKS)
        stream.codec_context.thread_count = 1
        for pixels, tick, gap in zip(frames, ticks, [*gaps, gaps[-1]], strict=False):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base, frame.duration = tick, Fraction(1, _TICKS), gap
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()
