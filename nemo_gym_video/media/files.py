# SPDX-License-Identifier: Apache-2.0
"""Opens one regular file without side effects and checks it after opening: its kind, its root, its identity."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym_video.errors import MediaSourceError, Where

_LINUX: bool = sys.platform == "linux"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"),
          (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"), (stat.S_ISLNK, "symlink"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells one state of one file from another; times in nanoseconds, size in bytes."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, descriptor: int) -> FileIdentity:
        """The identity of an open file."""
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_beneath(
    path: str, real_roots: Sequence[str], *, shown: str, where: Where | None = None
) -> tuple[int, Path]:
    """Open the regular file ``path`` for reading if it really lies below one of ``real_roots``.

    Nothing outside the roots is opened, and the opened file's own path is checked again, so that a link swapped
    in between does not lead out. Returns the descriptor and the real path.
    """
    real = os.path.realpath(path)
    if not _is_inside(real, real_roots):
        raise MediaSourceError(
            "path is outside the media roots",
            code="media.outside_roots",
            got=shown,
            allowed=", ".join(real_roots),
            where=where,
        )
    descriptor = _open_file(real, shown, where)
    opened = _descriptor_path(descriptor, real)
    if not _is_inside(opened, real_roots):
        os.close(descriptor)
        raise MediaSourceError(
            "path left the media roots while it was opened", code="media.outside_roots", got=shown, where=where
        )
    return descriptor, Path(opened)


def open_regular(path: Path, *, identity: FileIdentity | None = None) -> int:
    """Open a regular file by its real path; with ``identity``, refuse one that has changed since."""
    descriptor = _open_file(str(path), str(path), None)
    if identity is not None and FileIdentity.of(descriptor) != identity:
        os.close(descriptor)
        raise MediaSourceError("file changed after it was checked", code="media.changed", got=str(path))
    return descriptor


def _open_file(path: str, shown: str, where: Where | None) -> int:
    """Open ``path`` without following a last link; a special file is refused before it is opened for reading."""
    handle = -1
    try:
        if _LINUX:
            # O_PATH has no side effect on devices and FIFOs; the same inode is then opened through /proc.
            handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            _check_regular(handle, shown, where)
            return os.open(f"/proc/self/fd/{handle}", _READ)
        descriptor = os.open(path, _READ | os.O_NOFOLLOW)
        _check_regular(descriptor, shown, where)
        return descriptor
    except OSError as error:
        code = "media.missing" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "media.unopenable"
        raise MediaSourceError(f"file cannot be opened ({error.strerror})", code=code, got=shown,
                               where=where) from error  # fmt: skip
    except ValueError as error:
        raise MediaSourceError(f"file cannot be opened ({error})", code="media.unopenable", got=shown,
                               where=where) from error  # fmt: skip
    finally:
        if handle >= 0:
            os.close(handle)


def _check_regular(descriptor: int, shown: str, where: Where | None) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        kind = next((name for test, name in _KINDS if test(mode)), "special file")
        if not _LINUX:
            os.close(descriptor)
        raise MediaSourceError(
            f"path is a {kind}, not a regular file", code="media.not_a_file", got=shown, where=where
        )


def _descriptor_path(descriptor: int, real: str) -> str:
    """The path under which the kernel knows an open file; on systems that cannot tell, resolved once more."""
    if _LINUX:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    again = os.path.realpath(real)
    if not os.path.samestat(os.fstat(descriptor), os.stat(again)):
        return ""
    return again


def _is_inside(path: str, real_roots: Sequence[str]) -> bool:
    return any(path.startswith(root if root.endswith("/") else root + "/") for root in real_roots)
