# SPDX-License-Identifier: Apache-2.0
"""Reads packets of one open container and decodes stretches of them, starting at key frames."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Container, Iterator
from typing import Any

from nemo_gym_video.media.video_index import ClipIndex, Segment

# Codecs whose decoders, when asked, drop exactly the frames that nothing refers to.
_CAN_SKIP = frozenset({"h264", "mpeg4", "mpeg2video", "mpeg1video"})
_REORDER = 16  # most frames that H.264 and HEVC may hold back
THREADS = max(1, min(4, os.process_cpu_count() or 1))


class ClipReader:
    """One decoder over one container. Not for several threads at once.

    ``frame_threads`` decodes with FFmpeg's frame threads. ``tolerant`` passes over packets that cannot be decoded,
    where otherwise a stretch ends at the first sign of damage.
    """

    def __init__(
        self, container: Any, stream: Any, *, frame_threads: bool = False, tolerant: bool = False
    ) -> None:
        """Take over an open container whose stream has not been decoded yet."""
        self.container = container
        self.stream = stream
        self._tolerant = tolerant
        self._stopped = False
        self._can_skip = not tolerant and stream.codec_context.codec.canonical_name in _CAN_SKIP
        stream.thread_type = "AUTO" if frame_threads else "NONE"
        stream.codec_context.thread_count = THREADS if frame_threads else 1
        if not tolerant:
            # Frames that lean on a damaged one are not marked, so every error has to end the stretch.
            stream.codec_context.options |= {"err_detect": "explode"}

    def decode(self, index: ClipIndex, segment: Segment) -> Iterator[Any]:
        """Yield the frames of ``segment`` that come out whole, in presentation order."""
        need = {int(index.pts[number]) for number in segment.frames}
        held: deque[tuple[int, Any]] = deque()
        for place, frame in enumerate(self._stretch(index, segment, need)):
            if frame.is_corrupt:
                if self._tolerant:
                    continue
                return
            if frame.pts in need:
                held.append((place, frame))
            # A damaged frame is marked when it is shown, which may be after frames that lean on it.
            while held and held[0][0] + _REORDER <= place:
                yield held.popleft()[1]
        if not self._stopped:
            yield from (frame for _, frame in held)

    def _stretch(self, index: ClipIndex, segment: Segment, need: Container[int]) -> Iterator[Any]:
        """What the decoder shows from the segment's key frame to its last wanted packet, to the last frame."""
        import av  # start-up: PyAV, only where a video is opened

        self._stopped = False
        context = self.stream.codec_context
        try:
            for packet in self._feed(index, segment):
                if self._can_skip and packet is not None:
                    context.skip_frame = "DEFAULT" if packet.pts in need else "NONREF"
                yield from self._shown(packet)
        except av.error.FFmpegError:
            self._stopped = True

    def _shown(self, packet: Any) -> list[Any]:
        """The frames that a packet brings out; of one that cannot be decoded none, if that is tolerated."""
        import av  # start-up: PyAV, only where a video is opened

        try:
            return list(self.stream.codec_context.decode(packet))
        except av.error.FFmpegError:
            if not self._tolerant:
                raise
            return []

    def _feed(self, index: ClipIndex, segment: Segment) -> Iterator[Any]:
        """The segment's packets, then ``None``, on which the decoder gives what it holds back."""
        import av  # start-up: PyAV, only where a video is opened

        try:
            yield from itertools.islice(self._packets_from(index, segment.key), index.span(segment))
        except av.error.FFmpegError:
            if not self._tolerant:
                raise
        yield None

    def decode_all(self) -> Iterator[Any]:
        """Every frame from the container's present place on, passing over what cannot be read or decoded."""
        import av  # start-up: PyAV, only where a video is opened

        packets = self.container.demux(self.stream)
        while True:
            try:
                packet = next(packets, None)
                if packet is None:
                    return
                shown = self.stream.codec_context.decode(packet if packet.size else None)
            except av.error.EOFError:
                return
            except av.error.FFmpegError:
                continue
            yield from shown

    def _packets_from(self, index: ClipIndex, key: int) -> Iterator[Any]:
        """The stream's packets from key frame ``key`` on; none if seeking cannot reach it."""
        target = int(index.key_pts[key])
        for attempt in sorted({key, max(key - 1, 0), max(key - 8, 0), 0}, reverse=True):
            self.container.seek(int(index.key_time[attempt]), stream=self.stream, backward=True)
            packets = self.container.demux(self.stream)
            for packet in packets:
                if packet.pts == target and packet.is_keyframe:
                    yield packet
                    yield from packets
                    return
                if packet.size == 0 or index.is_past(packet.pts, key):
                    break
