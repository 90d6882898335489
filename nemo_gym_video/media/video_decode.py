# SPDX-License-Identifier: Apache-2.0
"""Opens a container safely and decodes chosen frames of it, from key frames when that saves work.

A sparse pass seeks to the key frame of every wanted frame and, where the codec allows it, leaves out frames that
no other frame refers to. Anything unexpected (a decoder error, a damaged or missing frame) ends it, and the frames
still wanted come from a careful pass: a full sequential decode in one thread, which is the definition of right.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.formats import CODECS, CONTAINERS
from nemo_gym_video.media.policy import MediaLimits, check_pixels
from nemo_gym_video.media.sources import MediaBlob
from nemo_gym_video.media.video_index import ClipIndex, Segment, frames_index
from nemo_gym_video.media.video_reader import THREADS, ClipReader

Reopen = Callable[[], AbstractContextManager[tuple[Any, Any]]]

# Containers in which a cut-off last frame looks like any other packet.
_UNFRAMED = frozenset({"mpegts", "mpeg", "flv"})
_LARGE_PICTURE = 640 * 480
_HELD_BYTES = 24 << 20
_SMALL_WORK = 2_000_000  # pixels to decode below which threads cost more than they bring
_READ_SIZE = 1 << 18


@contextmanager
def open_container(blob: MediaBlob, *, limits: MediaLimits, where: Where | None) -> Iterator[tuple[Any, Any]]:
    """A PyAV container and its video stream, opened by the demuxer that the content calls for and by no other.

    Raises:
        MediaDecodeError: unlisted container or codec, no video stream, too many streams or pixels, broken.
    """
    import av  # start-up: PyAV, only where a video is opened

    demuxer = CONTAINERS.get(blob.media_type)
    if demuxer is None:
        raise MediaDecodeError(
            "content is no video container that is opened",
            code="media.type",
            got=blob.media_type,
            allowed=", ".join(CONTAINERS),
            where=where,
        )
    # No protocol, no nested file: a container can only be read from the file it stands in.
    options = {"protocol_whitelist": "none", "max_pixels": str(_decoder_pixels(limits))}
    with blob.open_file() as file:
        with decode_errors(where):
            container = av.open(file, "r", format=demuxer, options=options, buffer_size=_READ_SIZE,
                                io_open=_refuse_nested)  # fmt: skip
        with container:
            yield container, _video_stream(container, limits, where)


@contextmanager
def decode_errors(where: Where | None) -> Iterator[None]:
    """Turn what FFmpeg and PyAV raise on broken content into ``MediaDecodeError``. Not for a caller's own code."""
    import av  # start-up: PyAV, only where a video is opened

    try:
        yield
    except (av.error.FFmpegError, ValueError, OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise MediaDecodeError(f"video cannot be decoded ({reason})", where=where) from error


class Decoder:
    """Decodes frames of one open clip. ``reopen`` gives the clip afresh, for other threads and careful passes."""

    def __init__(self, container: Any, stream: Any, *, reopen: Reopen, where: Where | None) -> None:
        """Take over an open container at its start."""
        self._reader = ClipReader(container, stream, frame_threads=stream.width * stream.height > _LARGE_PICTURE)
        self._frame_pixels = stream.width * stream.height
        self._reopen = reopen
        self.where = where

    def frames(self, index: ClipIndex, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield (frame number, PyAV frame) for ``wanted``, which is sorted and without repeats.

        Raises:
            MediaDecodeError: a wanted frame cannot be decoded.
        """
        done = 0
        if index.countable:
            for number, frame in self._sparse(index, wanted):
                yield number, frame
                done += 1
        if done < len(wanted):
            yield from self._careful(index, wanted[done:])

    def settle(self, index: ClipIndex) -> ClipIndex:
        """The index less what does not decode: counted if packets cannot tell, its tail tried if it may be cut."""
        stream = self._reader.stream
        if not index.countable:
            rate = stream.guessed_rate or stream.average_rate
            tick = 1 / float((rate or 25) * stream.time_base)
            times = [frame.pts for frame in self._decode_all()]
            return frames_index(times, damaged=index.damaged, hidden=index.hidden, tick=tick)
        if not index.damaged and self._reader.container.format.name not in _UNFRAMED:
            return index
        with self._reopen() as (container, stream):
            return _without_lost_tail(ClipReader(container, stream, tolerant=True), index)

    def _sparse(self, index: ClipIndex, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Decode from key frames; stops early, without an error, at the first sign of damage."""
        segments = index.segments(wanted)
        work = sum(index.span(segment) for segment in segments) * self._frame_pixels
        # Stretches in parallel hold their frames until their turn comes, so only short ones are done that way.
        held = max((len(segment.frames) for segment in segments), default=0) * self._frame_pixels * 3 // 2
        stretches: Iterator[Iterable[Any]] = (self._reader.decode(index, segment) for segment in segments)
        if len(segments) > 1 and work > _SMALL_WORK and held <= _HELD_BYTES:
            stretches = self._parallel(index, segments)
        elif work > _SMALL_WORK:
            stretches = (_read_ahead(self._reader.decode(index, segment)) for segment in segments)
        for segment, stretch in zip(segments, stretches, strict=True):
            expected = iter(segment.frames)
            for frame in stretch:
                number = next(expected, None)
                if number is None or frame.pts != index.pts[number]:
                    return
                yield number, frame
            if next(expected, None) is not None:
                return

    def _parallel(self, index: ClipIndex, segments: Sequence[Segment]) -> Iterator[list[Any]]:
        """Decode ``segments`` in a few threads, each with its own reader, a few segments ahead of the caller."""
        with ExitStack() as opened, ThreadPoolExecutor(THREADS) as pool:
            free: SimpleQueue[ClipReader] = SimpleQueue()
            for _ in range(THREADS):
                free.put(ClipReader(*opened.enter_context(self._reopen())))

            def work(segment: Segment) -> list[Any]:
                reader = free.get()
                try:
                    return list(reader.decode(index, segment))
                finally:
                    free.put(reader)

            ahead: deque[Future[list[Any]]] = deque()
            coming = iter(segments)
            try:
                for segment in itertools.islice(coming, THREADS + 1):
                    ahead.append(pool.submit(work, segment))
                while ahead:
                    yield ahead.popleft().result()
                    ahead.extend(pool.submit(work, segment) for segment in itertools.islice(coming, 1))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _careful(self, index: ClipIndex, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        expected = deque(wanted)
        for place, frame in enumerate(self._decode_all()):
            number = place if not index.countable else index.number_of(frame.pts)
            if number == expected[0]:
                if frame.is_corrupt:
                    raise MediaDecodeError(f"frame {number} is damaged", where=self.where)
                yield expected.popleft(), frame
            if not expected:
                return
        raise MediaDecodeError(f"frame {expected[0]} cannot be decoded", where=self.where)

    def _decode_all(self) -> Iterator[Any]:
        """Every frame of the clip in order, one thread, passing over packets that cannot be decoded."""
        with self._reopen() as (container, stream):
            yield from ClipReader(container, stream, tolerant=True).decode_all()


def _read_ahead(frames: Iterator[Any]) -> Iterator[Any]:
    """``frames``, the next one decoded in a thread while the caller works on this one."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = pool.submit(next, frames, None)
            yield frame


def _without_lost_tail(reader: ClipReader, index: ClipIndex) -> ClipIndex:
    """Decode from the last key frame (and ones before, while nothing comes) and drop what is lost.

    A key frame may be one from which the picture only builds up, so what is lost is tried from further back.
    """
    end = index.total
    while end > 0:
        behind = index.position[:end] >= index.key_position[index.key_for(end - 1)]
        first = int(np.argmax(behind))
        key = index.key_for(first)
        lost = set(range(first, end))
        for start in sorted({key, max(key - 4, 0)}, reverse=True):
            if lost:
                shown = {int(frame.pts) for frame in reader.decode(index, Segment(start, sorted(lost)))}
                lost = {number for number in lost if int(index.pts[number]) not in shown}
        if len(lost) < end - first or key == 0:
            return index.without(sorted(lost | set(range(end, index.total))))
        end = first
    return index


def displayed(frame: Any, *, expected: tuple[int, int], where: Where | None) -> npt.NDArray[np.uint8]:
    """A frame's pixels as displayed, [height, width, 3] RGB, a view of decoder memory; of size ``expected``."""
    picture = frame.reformat(format="rgb24", interpolation="BICUBIC")
    plane = picture.planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    pixels = rows[: picture.height, : 3 * picture.width].reshape(picture.height, picture.width, 3)
    swap, flip_x, flip_y = _orientation(frame)
    if swap:
        pixels = pixels.transpose(1, 0, 2)
    pixels = pixels[:: -1 if flip_y else 1, :: -1 if flip_x else 1]
    if (pixels.shape[1], pixels.shape[0]) != expected:
        raise MediaDecodeError(
            "frame size changes within the clip",
            code="media.frame_sizes",
            got=f"{pixels.shape[1]}x{pixels.shape[0]}",
            allowed=f"{expected[0]}x{expected[1]}",
            where=where,
        )
    return pixels


def rotation(frame: Any) -> tuple[int, bool]:
    """Degrees clockwise by which a frame is turned for display, and whether it is mirrored before that."""
    swap, flip_x, flip_y = _orientation(frame)
    if swap:
        return (90 if flip_x else 270), flip_x == flip_y
    return (180 if flip_y else 0), flip_x != flip_y


def _orientation(frame: Any) -> tuple[bool, bool, bool]:
    """(swap axes, then flip x, flip y) of the frame's display matrix; no matrix is no change.

    The matrix maps (x, y) to (a x + c y, b x + d y), 16.16 fixed point, stored as a b u, c d v, x y w.
    """
    data = next((item for item in frame.side_data.values() if item.type.name == "DISPLAYMATRIX"), None)
    if data is None:
        return False, False, False
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(data), np.int32)[:5])
    if a and d and not b and not c:
        return False, a < 0, d < 0
    if b and c and not a and not d:
        return True, c < 0, b < 0
    raise MediaDecodeError("video is turned by no multiple of 90 degrees", got=(a, b, c, d))


def _video_stream(container: Any, limits: MediaLimits, where: Where | None) -> Any:
    if len(container.streams) > limits.max_streams:
        raise MediaDecodeError("file has too many streams", code="media.too_large", got=len(container.streams),
                               allowed=str(limits.max_streams), where=where)  # fmt: skip
    stream = next((stream for stream in container.streams.video if not _is_cover(stream)), None)
    if stream is None:
        raise MediaDecodeError("file has no video stream", code="media.no_video_stream", where=where)
    context = stream.codec_context
    if context is None or context.codec.canonical_name not in CODECS:
        name = "unknown" if context is None else context.codec.canonical_name
        raise MediaDecodeError("video codec is not one that is decoded", code="media.codec", got=name, where=where)
    check_pixels((context.width, context.height), limits, where)
    context.options = {"max_pixels": str(_decoder_pixels(limits))}
    return stream


def _decoder_pixels(limits: MediaLimits) -> int:
    """FFmpeg's own bound, which it applies to padded sizes; the exact one is checked on header and frames."""
    return 2 * limits.max_pixels + (1 << 16)


def _is_cover(stream: Any) -> bool:
    return bool(stream.disposition & type(stream.disposition).attached_pic)


def _refuse_nested(url: str, flags: int, options: object) -> object:
    raise PermissionError(f"container refers to another file: {url[:80]}")
