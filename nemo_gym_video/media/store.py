# SPDX-License-Identifier: Apache-2.0
"""A content-addressed store: one file a digest, in 256 shards, written beside and renamed into place."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from nemo_gym_video.errors import MediaSourceError

_SUFFIX = re.compile(r"(\.[a-z0-9]{1,8})?")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A stored content: ``digest`` is ``sha256:<hex>`` of its bytes, ``path`` its file."""

    digest: str
    path: Path


class ContentStore:
    """Keeps each content once below ``root``. Writers in any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        """Use ``root``, which is made when the first content is put."""
        self.root = root

    def put(self, data: bytes, *, suffix: str = "") -> StoredBlob:
        """Store ``data`` and return where; content that is there already (whole, by size) is not written again."""
        if not _SUFFIX.fullmatch(suffix):
            raise MediaSourceError("store suffix is malformed", got=suffix, allowed="'.png' and the like")
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest, suffix)
        if not _is_whole(path, len(data)):
            write_whole(path, data)
        return StoredBlob("sha256:" + digest, path)

    def path(self, digest: str, *, suffix: str = "") -> Path:
        """Where ``digest`` is kept, whether or not it is there."""
        match = _DIGEST.fullmatch(digest)
        if match is None or not _SUFFIX.fullmatch(suffix):
            raise MediaSourceError("no content digest", got=digest, allowed="sha256:<64 hex digits>")
        return self._path(match[1], suffix)

    def _path(self, digest: str, suffix: str) -> Path:
        return self.root / digest[:2] / (digest + suffix)


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path`` and rename it into place, so that ``path`` is never seen half-written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name[:40]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with beside.open("xb") as file:
            file.write(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
