# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nemo_gym_video.media.video import open_clip
from nemo_gym_video.prepare.frame_folders import StoredFrames, manifest_holds, store_frames, store_video
from nemo_gym_video.prepare.synthetic.encode import write_clip
from nemo_gym_video.prepare.whole_files import remove_leftovers, written_beside

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    write_clip(path, [np.full((32, 48, 3), 10 * index, dtype=np.uint8) for index in range(12)], fps=24)
    return path


def store(clip: Path, root: Path) -> StoredFrames:
    with open_clip(clip) as opened:
        return store_frames(opened, [0, 5, 5, 11], digest=DIGEST, root=root, form="png", asked={"num_frames": 4})


def test_repeats_share_a_file_and_keep_their_place(clip: Path, tmp_path: Path) -> None:
    stored = store(clip, tmp_path / "out")
    assert stored.indices == (0, 5, 5, 11)
    assert stored.paths[1] == stored.paths[2]
    assert len(set(stored.paths)) == 3
    assert stored.timestamps == pytest.approx([0, 5 / 24, 5 / 24, 11 / 24])
    assert stored.size == (48, 32)


def test_whole_sets_are_kept_and_broken_ones_done_again(clip: Path, tmp_path: Path) -> None:
    root = tmp_path / "out"
    stored = store(clip, root)
    first = root / stored.paths[0]
    whole, before = first.read_bytes(), first.stat().st_mtime_ns
    store(clip, root)
    assert first.stat().st_mtime_ns == before
    for broken in (whole[:-1], whole[:-1] + b"x", b""):
        first.write_bytes(broken)
        assert not manifest_holds(root, stored.manifest)
        store(clip, root)
        assert first.read_bytes() == whole
    first.unlink()
    assert not manifest_holds(root, stored.manifest)
    assert store(clip, root) == stored
    assert manifest_holds(root, stored.manifest)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"files": {"a": 1}}', '{"files": {"gone.png": {"bytes": 1}}}']
)
def test_a_manifest_that_is_not_whole_does_not_hold(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert not manifest_holds(tmp_path, "manifest.json")


def test_the_manifest_says_what_was_asked_and_delivered(clip: Path, tmp_path: Path) -> None:
    stored = store(clip, tmp_path)
    record = json.loads((tmp_path / stored.manifest).read_text())
    assert record["asked"] == {"num_frames": 4}
    assert record["delivered"] == [0, 5, 5, 11]
    assert record["video"] == DIGEST
    assert "PyAV" in record["decoder"]
    assert record["files"][stored.paths[3]]["timestamp"] == pytest.approx(11 / 24)


def test_a_video_is_put_under_the_root_once(clip: Path, tmp_path: Path) -> None:
    name = store_video(clip, digest=DIGEST, root=tmp_path / "out")
    assert name == "media/abababababababab/video.mp4"
    assert (tmp_path / "out" / name).read_bytes() == clip.read_bytes()
    assert store_video(clip, digest=DIGEST, root=tmp_path / "out") == name


def test_a_failed_write_leaves_the_old_file_and_no_leftover(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("old")

    def fail() -> None:
        with written_beside(path) as beside:
            beside.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_killed_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    left = tmp_path / "media" / ".000001.png.123.partial"
    left.write_bytes(b"half")
    kept = tmp_path / "media" / "my.partial"
    kept.write_bytes(b"x")
    assert remove_leftovers(tmp_path) == 1
    assert not left.exists()
    assert kept.exists()
