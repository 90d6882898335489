# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from nemo_gym_video.errors import MediaSourceError
from nemo_gym_video.media.store import ContentStore, write_whole


def test_put_stores_the_bytes_under_their_digest(tmp_path: Path) -> None:
    stored = ContentStore(tmp_path / "store").put(b"content", suffix=".png")
    digest = hashlib.sha256(b"content").hexdigest()
    assert stored.digest == "sha256:" + digest
    assert stored.path == tmp_path / "store" / digest[:2] / (digest + ".png")
    assert stored.path.read_bytes() == b"content"


def test_put_does_not_write_the_same_content_twice(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    before = store.put(b"content").path.stat()
    after = store.put(b"content").path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_put_replaces_a_file_that_is_not_whole(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    path = store.put(b"content").path
    path.write_bytes(b"con")
    assert store.put(b"content").path.read_bytes() == b"content"


def test_path_refuses_what_is_no_digest(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    assert store.path("sha256:" + "a" * 64, suffix=".png").name == "a" * 64 + ".png"
    for digest in ("a" * 64, "sha256:../../etc/passwd", "sha256:" + "A" * 64):
        with pytest.raises(MediaSourceError, match="no content digest"):
            store.path(digest)
    with pytest.raises(MediaSourceError, match="suffix"):
        store.put(b"x", suffix="/../x")


def test_writers_in_threads_leave_whole_files_and_nothing_else(tmp_path: Path) -> None:
    contents = [bytes([number]) * 20_000 for number in range(8)]

    def write() -> None:
        for content in contents:
            ContentStore(tmp_path).put(content, suffix=".bin")

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in files) == contents


def test_write_whole_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    (target / "full").mkdir(parents=True)
    with pytest.raises(OSError):
        write_whole(target, b"x")
    assert list(tmp_path.iterdir()) == [target]
