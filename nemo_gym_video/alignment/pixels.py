# SPDX-License-Identifier: Apache-2.0
"""Lazy pixels: an index holds references, a handle opens them when somebody looks.

Every reference goes through the source policy. An asset is decoded once for all repeats of a rollout and for all
threads that ask at the same time, and stays in memory within a byte budget, least recently used first out.
Decoding blocks; call it off an event loop.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nemo_gym_video.alignment.media_id import MediaRef, reference_id
from nemo_gym_video.alignment.occurrences import Occurrence
from nemo_gym_video.errors import MediaDecodeError
from nemo_gym_video.media.image import DecodedImage, read_image
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.video import read_frames
from nemo_gym_video.messages import FrameManifest, is_manifest_url, short_url


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFrames:
    """Frames of one video as displayed, read-only.

    ``pixels`` is uint8 [n, height, width, 3] RGB and ``size`` (width, height). ``indices`` are places in the
    clip, or among the frames that were sent one by one; ``timestamps`` are seconds in the clip, None for frames
    that were sent one by one.
    """

    pixels: npt.NDArray[np.uint8]
    size: tuple[int, int]
    indices: tuple[int, ...]
    timestamps: tuple[float, ...] | None = None


class MediaReader:
    """Decodes what handles ask for and keeps it, up to ``max_bytes`` of pixels. Safe to share between threads.

    >>> from nemo_gym_video import MediaReader, MediaRef, MediaSources, SourcePolicy
    >>> reader = MediaReader(MediaSources(SourcePolicy()))
    >>> handle = reader.handle(MediaRef("image", ("media/cat.png",)))
    >>> handle.image()
    Traceback (most recent call last):
        ...
    nemo_gym_video.errors.MediaSourceError: ...
    >>> reader.kept_bytes
    0
    """

    def __init__(self, sources: MediaSources, *, max_bytes: int = 1 << 30) -> None:
        """``sources`` decides what may be opened; with ``max_bytes=0`` nothing is kept."""
        self.sources = sources
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, DecodedImage | DecodedFrames] = OrderedDict()
        self._running: dict[object, Future[DecodedImage | DecodedFrames]] = {}
        self._bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of pixels held at this moment."""
        return self._bytes

    def handle(self, media: Occurrence | MediaRef) -> MediaHandle:
        """A handle on one occurrence of an index, or on a bare reference. Opens nothing."""
        if isinstance(media, MediaRef):
            return MediaHandle(self, media, None)
        return MediaHandle(self, media.ref, media.frame_indices)

    def once(
        self, key: object, decode: Callable[[], DecodedImage | DecodedFrames]
    ) -> DecodedImage | DecodedFrames:
        """``decode()``, or its kept result; a second caller waits for the first. A failure is not kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
            running = self._running.get(key)
            mine = running is None
            if running is None:
                running = self._running[key] = Future()
        if not mine:
            return running.result()
        try:
            value = decode()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            running.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
            self._keep(key, value)
        running.set_result(value)
        return value

    def _keep(self, key: object, value: DecodedImage | DecodedFrames) -> None:
        if value.pixels.nbytes > self.max_bytes:
            return
        self._kept[key] = value
        self._bytes += value.pixels.nbytes
        while self._bytes > self.max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.pixels.nbytes


class MediaHandle:
    """Pixels of one reference, when asked for."""

    __slots__ = ("_indices", "_reader", "ref")

    def __init__(self, reader: MediaReader, ref: MediaRef, indices: tuple[int, ...] | None) -> None:
        """``indices`` are the recorded frame indices of a native video, where there are any."""
        self._reader = reader
        self.ref = ref
        self._indices = indices

    def image(self) -> DecodedImage:
        """The image, as displayed.

        Raises:
            MediaSourceError: the source policy refuses it.
            MediaDecodeError: it is no image, broken, or a video was asked for.
        """
        if self.ref.kind != "image":
            raise MediaDecodeError("a video has frames, no image", got=self._shown, allowed="frames()")
        key, opened = self._key(self.ref.urls[0], "image")
        value = self._reader.once(("image", key), lambda: _read_only_image(self._still(self.ref.urls[0], opened)))
        assert isinstance(value, DecodedImage)
        return value

    def frames(self, indices: Sequence[int] | None = None) -> DecodedFrames:
        """The frames of ``indices``, in that order.

        Without ``indices`` all frames that were sent one by one or in a manifest, and for a native video those
        that the contract recorded.

        Raises:
            MediaSourceError: the source policy refuses the video or one of its frames.
            MediaDecodeError: it cannot be decoded, an index is not in it, its frames differ in size, or a native
                video was asked for without any indices.
        """
        if self.ref.kind != "video":
            raise MediaDecodeError("an image has no frames", got=self._shown, allowed="image()")
        asked = None if indices is None else tuple(int(index) for index in indices)
        urls = self._frame_urls()
        if urls is None:
            return self._native(self._indices if asked is None else asked)
        keys = tuple(self._key(url, "image")[0] for url in urls)
        value = self._reader.once(("frames", keys), lambda: self._stack(urls))
        assert isinstance(value, DecodedFrames)
        return value if asked is None else _select(value, asked)

    @property
    def _shown(self) -> str:
        return short_url(self.ref.source)

    def _frame_urls(self) -> tuple[str, ...] | None:
        """References of the single frames; None for a native video."""
        if self.ref.tagged:
            return self.ref.urls
        if is_manifest_url(self.ref.urls[0]):
            return FrameManifest.from_url(self.ref.urls[0]).frame_paths
        return None

    def _key(self, url: str, kind: str) -> tuple[str, MediaBlob | None]:
        """What names the content: a data URL's digest without opening it, else that of the opened file."""
        if url[:5].lower() == "data:":
            return reference_id(url), None
        blob = self._reader.sources.open(url, kind="video" if kind == "video" else "image")
        return blob.digest, blob

    def _still(self, url: str, opened: MediaBlob | None) -> DecodedImage:
        sources = self._reader.sources
        blob = opened or sources.open(url, kind="image")
        return read_image(blob, limits=sources.policy.limits)

    def _stack(self, urls: tuple[str, ...]) -> DecodedFrames:
        limits = self._reader.sources.policy.limits
        first = self._still(urls[0], None)
        size = first.pixels.nbytes * len(urls)
        if size > limits.max_read_bytes:
            raise MediaDecodeError("frames are too large together", code="media.too_large", got=f"{size} bytes",
                                   allowed=f"{limits.max_read_bytes} bytes")  # fmt: skip
        pixels = np.empty((len(urls), *first.pixels.shape), np.uint8)
        for place, url in enumerate(urls):
            image = self._still(url, None) if place else first
            if image.size != first.size:
                raise MediaDecodeError(
                    f"frame {place} of a video has another size than its first",
                    code="media.frame_sizes",
                    got=image.size,
                    allowed=str(first.size),
                )
            pixels[place] = image.pixels
        pixels.flags.writeable = False
        return DecodedFrames(pixels=pixels, size=first.size, indices=tuple(range(len(urls))))

    def _native(self, indices: tuple[int, ...] | None) -> DecodedFrames:
        if indices is None:
            raise MediaDecodeError("no frame indices are recorded for this video", got=self._shown,
                                   allowed="frames(indices)")  # fmt: skip
        url = self.ref.urls[0]
        key, opened = self._key(url, "video")
        value = self._reader.once(("video", key, indices), lambda: self._decode(url, opened, indices))
        assert isinstance(value, DecodedFrames)
        return value

    def _decode(self, url: str, opened: MediaBlob | None, indices: tuple[int, ...]) -> DecodedFrames:
        sources = self._reader.sources
        found = read_frames(opened or sources.open(url, kind="video"), indices, limits=sources.policy.limits)
        found.pixels.flags.writeable = False
        return DecodedFrames(pixels=found.pixels, size=found.size, indices=found.indices,
                             timestamps=found.timestamps)  # fmt: skip


def _read_only_image(image: DecodedImage) -> DecodedImage:
    pixels = image.pixels.view()
    pixels.flags.writeable = False
    return DecodedImage(pixels=pixels, size=image.size)


def _select(frames: DecodedFrames, indices: tuple[int, ...]) -> DecodedFrames:
    for index in indices:
        if not 0 <= index < len(frames.indices):
            raise MediaDecodeError(
                "frame is not in the video", got=index, allowed=f"0 to {len(frames.indices) - 1}"
            )
    pixels = frames.pixels[list(indices)]
    pixels.flags.writeable = False
    return DecodedFrames(pixels=pixels, size=frames.size, indices=indices)
