# SPDX-License-Identifier: Apache-2.0
"""Decoding of untrusted media in child processes: bounded in time and memory; a crash costs one item.

The child is a fresh interpreter under an address-space limit. It opens the file that the policy let in by its real
path and checks that it is still the same; it answers with plain numbers and raw pixels. A child that is late or
dies is replaced. Calls block; they may come from several threads.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import Any, Self

import numpy as np

from nemo_gym_video import errors
from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.decoder_wire import Wire, WireError, blob_to_json
from nemo_gym_video.media.image import DecodedImage, ImageInfo
from nemo_gym_video.media.policy import MediaLimits
from nemo_gym_video.media.sources import MediaBlob
from nemo_gym_video.media.video import VideoFrames, VideoInfo

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


class BoundedDecoder:
    """The functions of ``image`` and ``video``, each in a child process.

    ``workers`` children are started when they are needed and kept; ``timeout_s`` bounds one call,
    ``memory_bytes`` the address space of one child.
    """

    def __init__(self, *, workers: int = 2, timeout_s: float = 60.0, memory_bytes: int = 4 << 30) -> None:
        """Start nothing yet."""
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self._workers: LifoQueue[_Child | None] = LifoQueue()
        for _ in range(workers):
            self._workers.put(None)

    def probe_image(
        self, blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None
    ) -> ImageInfo:
        """As ``media.image.probe_image``."""
        with self._call("probe_image", blob, limits, where) as wire:
            return _image_info(_header(wire, where))

    def read_image(
        self, blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None
    ) -> DecodedImage:
        """As ``media.image.read_image``."""
        limits = limits or MediaLimits()
        with self._call("read_image", blob, limits, where) as wire:
            info = _image_info(_header(wire, where))
            width, height = info.size
            if not 0 < width * height <= limits.max_pixels:
                raise WireError("image of an impossible size")
            pixels = np.empty((height, width, 3), np.uint8)
            wire.receive_into(pixels.data.cast("B"))
        return DecodedImage(pixels=pixels, size=info.size)

    def probe_video(
        self, blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None
    ) -> VideoInfo:
        """As ``media.video.probe_video``."""
        with self._call("probe_video", blob, limits, where) as wire:
            return _video_info(wire, _header(wire, where))

    def read_frames(
        self,
        blob: MediaBlob,
        indices: Sequence[int],
        *,
        limits: MediaLimits | None = None,
        where: Where | None = None,
    ) -> VideoFrames:
        """As ``media.video.read_frames``; the child holds one frame at a time."""
        limits = limits or MediaLimits()
        asked = [int(index) for index in indices]
        with self._call("read_frames", blob, limits, where, indices=asked) as wire:
            info = _video_info(wire, _header(wire, where))
            width, height = info.size
            if len(asked) * width * height * 3 > limits.max_read_bytes:
                raise MediaDecodeError(
                    "frames asked for are too large together",
                    code="media.too_large",
                    got=len(asked),
                    allowed=f"{limits.max_read_bytes} bytes",
                    where=where,
                )
            pixels = np.empty((len(asked), height, width, 3), np.uint8)
            places: dict[int, list[int]] = {}
            for place, index in enumerate(asked):
                places.setdefault(index, []).append(place)
            while "end" not in (header := _header(wire, where)):
                first, *others = places.pop(header["frame"])
                wire.receive_into(pixels[first].data.cast("B"))
                pixels[others] = pixels[first]
            if places:
                raise WireError("frames are missing from the answer")
        timestamps = tuple(float(info.timestamps[index]) for index in asked)
        return VideoFrames(
            pixels=pixels,
            indices=tuple(asked),
            timestamps=timestamps,
            size=info.size,
            fps=info.fps,
            total=info.total,
            decodable=info.decodable,
            decoder=info.decoder,
        )

    def close(self) -> None:
        """End the children that are idle; a later call starts new ones."""
        for _ in range(self._workers.qsize()):
            child = self._workers.get()
            if child is not None:
                child.end()
            self._workers.put(None)

    def __enter__(self) -> Self:
        """Use as a context to end the children with it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the children."""
        self.close()

    @contextmanager
    def _call(
        self, call: str, blob: MediaBlob, limits: MediaLimits | None, where: Where | None, **more: Any
    ) -> Iterator[Wire]:
        """Send one request to a free child; the child is kept only if its whole answer was taken."""
        child = self._workers.get()
        kept: _Child | None = None
        try:
            if child is None or not child.alive:
                child = _Child(self.memory_bytes)
            child.wire.deadline = time.monotonic() + self.timeout_s
            request = {"call": call, "blob": blob_to_json(blob), "limits": asdict(limits or MediaLimits()), **more}
            child.wire.send(request, blob.data or b"")
            yield child.wire
            kept = child
        except _Refused as refused:
            kept = child
            raise refused.error from None
        except TimeoutError:
            raise MediaDecodeError(
                "decoding took too long", code="media.decoder_timeout", allowed=f"{self.timeout_s} s", where=where
            ) from None
        except (WireError, OSError, ValueError, LookupError, TypeError) as error:
            assert child is not None
            reason = child.end() or str(error)
            raise MediaDecodeError(
                f"decoder process failed ({reason})", code="media.decoder_failed", where=where
            ) from error
        finally:
            if kept is None and child is not None:
                child.end()
            self._workers.put(kept)


class _Refused(Exception):
    """The child answered with an error of ours, and is ready for the next request."""

    def __init__(self, error: errors.NemoGymVideoError) -> None:
        super().__init__()
        self.error = error


class _Child:
    """One child process and the wire to it."""

    def __init__(self, memory_bytes: int) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        path = [str(_PACKAGE_PARENT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nemo_gym_video.media.decoder_child", str(theirs.fileno()),
                 str(memory_bytes)],
                pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self._connection = ours
        self.wire = Wire(ours)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> str:
        """Kill the process; says how it had ended if it was dead already."""
        self._connection.close()
        try:
            code = self._process.wait(0.05)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return ""
        if code < 0:
            return f"signal {signal.Signals(-code).name}"
        return f"exit code {code}" if code else ""


def _header(wire: Wire, where: Where | None) -> dict[str, Any]:
    header = wire.receive()
    name = header.get("error")
    if name is None:
        return header
    kind = errors.MediaSourceError if name == "MediaSourceError" else MediaDecodeError
    raise _Refused(kind(str(header["problem"]), code=str(header["code"]), got=header["got"],
                        allowed=header["allowed"], where=where))  # fmt: skip


def _image_info(header: dict[str, Any]) -> ImageInfo:
    body = header["info"]
    return ImageInfo(size=_pair(body["size"]), format=str(body["format"]), mode=str(body["mode"]),
                     orientation=int(body["orientation"]))  # fmt: skip


def _video_info(wire: Wire, header: dict[str, Any]) -> VideoInfo:
    body = dict(header["info"])
    body["size"] = _pair(body["size"])
    body["sample_aspect_ratio"] = _pair(body["sample_aspect_ratio"])
    if header["bytes"] != 8 * body["decodable"]:
        raise WireError("timestamps do not fit the frame count")
    timestamps = np.frombuffer(wire.receive_bytes(header["bytes"]), np.float64)
    return VideoInfo(**body, timestamps=timestamps)


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    return int(first), int(second)
