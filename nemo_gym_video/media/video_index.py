# SPDX-License-Identifier: Apache-2.0
"""The index of a clip: which frames it presents, when, and from which key frame each can be decoded.

Built by demuxing alone: packets are read, no frame is decoded. Frames are numbered 0.. by presentation time, after
the container's edit list, as a full sequential decode yields them. Where packets cannot say that (times missing or
not unique, no key frame in front), ``countable`` is false and the frames have to be counted by decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.policy import MediaLimits

Ticks = npt.NDArray[np.int64]

_VP8_SHOW_FRAME = 0x10


_NEAR_PACKETS = 8
_SHORT_PACKETS = 32


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of decoding: from key frame ``key`` up to the last of ``frames`` (sorted frame numbers)."""

    key: int
    frames: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipIndex:
    """Frames in presentation order, times in ticks of the stream's time base.

    ``pts`` [n] are presentation times, ``position`` [n] the packet of each frame in file order, ``key_position``
    and ``key_pts`` [k] the key frames in file order, ``key_time`` [k] what to seek to for each. ``last_duration``
    is that of the last frame (0 if unknown). ``damaged``: reading stopped early or a packet was cut short.
    """

    pts: Ticks
    position: Ticks
    key_position: Ticks
    key_pts: Ticks
    key_time: Ticks
    last_duration: int
    hidden: int
    damaged: bool
    countable: bool

    @property
    def total(self) -> int:
        """Number of frames that can be presented."""
        return len(self.pts)

    def key_for(self, frame: int) -> int:
        """Number of the key frame from which ``frame`` can be decoded whole.

        It comes before the frame in the file and is presented no later: a frame that follows a key frame in the
        file but precedes it on screen refers to pictures before that key frame.
        """
        key = int(np.searchsorted(self.key_position, self.position[frame], side="right")) - 1
        while key > 0 and self.key_pts[key] > self.pts[frame]:
            key -= 1
        return max(key, 0)

    def segments(self, wanted: Sequence[int]) -> list[Segment]:
        """Group sorted frames by the stretch that serves them: one key frame's, or several short ones in a row."""
        found: list[Segment] = []
        start = reached = 0
        for frame in wanted:
            key = self.key_for(frame)
            at = int(self.key_position[key])
            if found and (at <= start or (at <= reached + _NEAR_PACKETS and reached < start + _SHORT_PACKETS)):
                found[-1].frames.append(frame)
            else:
                found.append(Segment(key, [frame]))
                start = at
            reached = max(reached, int(self.position[frame]))
        return found

    def span(self, segment: Segment) -> int:
        """Packets from the segment's key frame to its last wanted one."""
        last = max(int(self.position[number]) for number in segment.frames)
        return last - int(self.key_position[segment.key]) + 1

    def number_of(self, pts: int | None) -> int | None:
        """The frame that is presented at ``pts``."""
        if pts is None:
            return None
        number = int(np.searchsorted(self.pts, pts))
        return number if number < self.total and self.pts[number] == pts else None

    def is_past(self, pts: int | None, key: int) -> bool:
        """Whether the packet with ``pts`` comes after key frame ``key`` in the file."""
        number = self.number_of(pts)
        return number is not None and bool(self.position[number] > self.key_position[key])

    def without(self, lost: Sequence[int]) -> ClipIndex:
        """The index less the frames that turned out not to decode."""
        if not lost:
            return self
        return replace(self, pts=np.delete(self.pts, lost), position=np.delete(self.position, lost), damaged=True)


def build_index(container: Any, stream: Any, *, limits: MediaLimits, where: Where | None) -> ClipIndex:
    """Demux ``stream`` (a PyAV video stream at its start) to its end.

    Raises:
        MediaDecodeError: more frames than ``limits.max_frames``.
    """
    import av  # start-up: PyAV, only where a video is opened

    rows: list[tuple[int | None, int | None, bool, bool]] = []
    duration, damaged = 0, False
    check_shown = stream.codec_context.codec.id == _vp8_id()
    try:
        for packet in container.demux(stream):
            pts = packet.pts
            if packet.size == 0 and pts is None and packet.dts is None:
                break
            damaged |= packet.is_corrupt
            shown = not packet.is_discard and not (check_shown and _vp8_hidden(packet))
            rows.append((pts, packet.dts, packet.is_keyframe, shown))
            duration = packet.duration or duration
            if len(rows) > limits.max_frames:
                raise MediaDecodeError(
                    "video has too many frames",
                    code="media.too_large",
                    got=f"over {limits.max_frames}",
                    allowed=f"{limits.max_frames} frames",
                    where=where,
                )
    except av.error.FFmpegError:
        damaged = True
    return _index(rows, duration, damaged)


def _index(rows: list[tuple[int | None, int | None, bool, bool]], duration: int, damaged: bool) -> ClipIndex:
    keys = [(place, pts, pts if dts is None else dts) for place, (pts, dts, key, _) in enumerate(rows)
            if key and pts is not None]  # fmt: skip
    frames = sorted(
        (pts, position) for position, (pts, _, _, shown) in enumerate(rows) if shown and pts is not None
    )
    timed = all(pts is not None for pts, _, _, shown in rows if shown)
    # What stands before the first key frame, in the file or on screen, may or may not decode: only trying tells.
    whole = bool(keys) and keys[0][0] == 0 and (not frames or frames[0][0] >= keys[0][1])
    pts = np.array([frame[0] for frame in frames], np.int64)
    return ClipIndex(
        pts=pts,
        position=np.array([frame[1] for frame in frames], np.int64),
        key_position=np.array([place for place, _, _ in keys], np.int64),
        key_pts=np.array([pts for _, pts, _ in keys], np.int64),
        key_time=np.array([seek for _, _, seek in keys], np.int64),
        last_duration=duration,
        hidden=sum(not row[3] for row in rows),
        damaged=damaged,
        countable=timed and whole and bool((np.diff(pts) > 0).all()),
    )


def frames_index(times: Sequence[int | None], *, damaged: bool, hidden: int, tick: float) -> ClipIndex:
    """The index of frames that were counted by decoding; ``tick`` spaces them if their times are no use."""
    good = all(time is not None for time in times)
    pts = np.array(times if good else [], np.int64)
    if not good or not (np.diff(pts) > 0).all():
        pts = np.round(np.arange(len(times)) * tick).astype(np.int64)
    nothing = np.zeros(0, np.int64)
    return ClipIndex(
        pts=pts,
        position=np.arange(len(times)),
        key_position=nothing,
        key_pts=nothing,
        key_time=nothing,
        last_duration=0,
        hidden=hidden,
        damaged=damaged,
        countable=False,
    )


def _vp8_id() -> int:
    import av  # start-up: PyAV, only where a video is opened

    return int(av.Codec("vp8", "r").id)


def _vp8_hidden(packet: Any) -> bool:
    """Whether a VP8 packet is an alternate reference: its frame header has show_frame 0 (RFC 6386, 9.1)."""
    return packet.size > 0 and not memoryview(packet)[0] & _VP8_SHOW_FRAME
