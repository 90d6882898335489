# SPDX-License-Identifier: Apache-2.0
"""The bounded decoder's child process: takes requests one by one under a memory limit, until it is closed."""

from __future__ import annotations

import os
import resource
import socket
import sys
from dataclasses import asdict
from typing import Any

from nemo_gym_video.errors import MediaDecodeError, NemoGymVideoError
from nemo_gym_video.media.decoder_wire import Wire, WireError, blob_from_json
from nemo_gym_video.media.policy import MediaLimits
from nemo_gym_video.media.sources import MediaBlob


def main(descriptor: int, memory_bytes: int) -> None:
    """Serve requests on the inherited socket ``descriptor``; ``memory_bytes`` bounds the address space."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # Decoders may print; nothing they say may reach the connection or the parent's output.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    wire = Wire(socket.socket(fileno=descriptor))
    while True:
        try:
            request = wire.receive()
            data = wire.receive_bytes(request["bytes"])
        except (WireError, OSError):
            return
        try:
            _answer(wire, request, blob_from_json(request["blob"], data), MediaLimits(**request["limits"]))
        except MemoryError:
            _refuse(
                wire,
                MediaDecodeError(
                    "media needs too much memory", code="media.too_large", allowed=f"{memory_bytes} bytes"
                ),
            )
        except NemoGymVideoError as error:
            _refuse(wire, error)


def _refuse(wire: Wire, error: NemoGymVideoError) -> None:
    got = error.got if error.got is None or isinstance(error.got, str | int | float) else repr(error.got)[:200]
    wire.send({"error": type(error).__name__, "code": error.code, "problem": error.problem, "got": got,
               "allowed": error.allowed})  # fmt: skip


def _answer(wire: Wire, request: dict[str, Any], blob: MediaBlob, limits: MediaLimits) -> None:
    call = request["call"]
    if call in ("probe_image", "read_image"):
        _answer_image(wire, call, blob, limits)
        return
    from nemo_gym_video.media.video import open_clip  # start-up: only what the child is asked for

    with open_clip(blob, limits=limits) as clip:
        info = asdict(clip.info)
        timestamps = info.pop("timestamps")
        wire.send({"info": info}, timestamps.tobytes())
        if call == "read_frames":
            for frame in clip.iter_frames(request["indices"]):
                wire.send({"frame": frame.index}, frame.pixels.data.cast("B"))
            wire.send({"end": True})


def _answer_image(wire: Wire, call: str, blob: MediaBlob, limits: MediaLimits) -> None:
    from nemo_gym_video.media.image import probe_image, read_image  # start-up: only what the child is asked for

    info = probe_image(blob, limits=limits)
    if call == "probe_image":
        wire.send({"info": asdict(info)})
    else:
        pixels = read_image(blob, limits=limits).pixels
        wire.send({"info": asdict(info)}, pixels.data.cast("B"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
