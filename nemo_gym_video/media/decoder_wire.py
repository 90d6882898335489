# SPDX-License-Identifier: Apache-2.0
"""What the bounded decoder and its child process say to each other: JSON headers and raw bytes, never pickles.

A message is a 4-byte length, a JSON object of that length, and as many raw bytes as its ``bytes`` field says.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nemo_gym_video.media.files import FileIdentity
from nemo_gym_video.media.sources import MediaBlob

HEADER_LIMIT = 16 << 20


class WireError(Exception):
    """The other side is gone, too late, or does not keep to the form."""


class Wire:
    """One end of the connection. ``deadline`` (monotonic seconds) bounds every send and receive."""

    def __init__(self, connection: socket.socket) -> None:
        """Speak over a connected stream socket."""
        self._connection = connection
        self.deadline: float | None = None

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
        """Send one message."""
        body = json.dumps(header | {"bytes": len(payload)}).encode()
        self._bound()
        self._connection.sendall(struct.pack("<I", len(body)) + body)
        if payload:
            self._connection.sendall(payload)

    def receive(self) -> dict[str, Any]:
        """The next message's header; its bytes are to be taken with ``receive_into`` or ``receive_bytes``."""
        (length,) = struct.unpack("<I", self.receive_bytes(4))
        if length > HEADER_LIMIT:
            raise WireError(f"header of {length} bytes")
        header = json.loads(self.receive_bytes(length))
        if not isinstance(header, dict) or not isinstance(header.get("bytes"), int):
            raise WireError("header is no object with a byte count")
        return header

    def receive_bytes(self, length: int) -> bytes:
        """Exactly ``length`` raw bytes."""
        data = bytearray(length)
        self.receive_into(memoryview(data))
        return bytes(data)

    def receive_into(self, view: memoryview) -> None:
        """Fill ``view`` with raw bytes."""
        filled = 0
        while filled < len(view):
            self._bound()
            count = self._connection.recv_into(view[filled:])
            if count == 0:
                raise WireError("connection closed")
            filled += count

    def _bound(self) -> None:
        if self.deadline is None:
            self._connection.settimeout(None)
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


def blob_to_json(blob: MediaBlob) -> dict[str, Any]:
    """A blob without its data, which travels as the message's bytes."""
    identity = None if blob.identity is None else asdict(blob.identity)
    path = None if blob.path is None else str(blob.path)
    return {"path": path, "identity": identity, "digest": blob.digest, "size_bytes": blob.size_bytes,
            "media_type": blob.media_type}  # fmt: skip


def blob_from_json(body: dict[str, Any], data: bytes) -> MediaBlob:
    """The blob that ``blob_to_json`` described."""
    identity = None if body["identity"] is None else FileIdentity(**body["identity"])
    return MediaBlob(
        url="",
        path=None if body["path"] is None else Path(body["path"]),
        data=data if body["path"] is None else None,
        digest=body["digest"],
        size_bytes=body["size_bytes"],
        media_type=body["media_type"],
        identity=identity,
    )
