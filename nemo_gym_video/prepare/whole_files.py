# SPDX-License-Identifier: Apache-2.0
"""Writing files so that a half-written one is never taken for whole: beside first, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BESIDE_SUFFIX = ".partial"
"""Ending of files being written. Leftovers of a killed run carry it and are removed by the next one."""


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A path to write to that takes ``path``'s place when the block ends well, and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}{BESIDE_SUFFIX}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, then rename."""
    with written_beside(path) as beside:
        beside.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 beside ``path``, then rename."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"))


def remove_leftovers(root: Path) -> int:
    """Remove what a killed run left half-written under ``root``; returns how many files that were."""
    leftovers = [path for path in root.rglob(f".*{BESIDE_SUFFIX}") if path.is_file()]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def dump_line(value: Any) -> str:
    """One JSON line with stable key order as given, no spaces, ending in a newline."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def file_digest(path: Path) -> str:
    """``sha256:<hex>`` of a file's bytes."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def stable_seed(*words: object) -> int:
    """A 64-bit seed that depends on ``words`` alone, the same in every process."""
    text = json.dumps([str(word) for word in words])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()[:8], "big")
