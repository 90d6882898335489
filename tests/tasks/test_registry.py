# SPDX-License-Identifier: Apache-2.0
"""Where tasks are found, which row belongs to which, and what a saved row cannot claim."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from nemo_gym_video.errors import RowError
from nemo_gym_video.servers.gym_root import search_root
from nemo_gym_video.tasks.registry import BUILT_IN, GROUP, TaskError, load_task, task_of_row
from nemo_gym_video.tasks.task import Answer

OWN = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B", "video": "a.mp4"}
SAID = {"type": "message", "role": "assistant", "content": r"\boxed{B}"}
SHOWN = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "a.png"}]}
ASKED = {"type": "message", "role": "assistant", "content": "more"}


def test_the_built_in_names_are_the_declared_ones() -> None:
    declared = tomllib.loads((search_root() / "pyproject.toml").read_text())
    assert declared["project"]["entry-points"][GROUP] == BUILT_IN


@pytest.mark.parametrize(
    ("environment", "task"),
    [("caprl_mcqa", "boxed_mcqa"), ("sav_pt_tracks", "sav_tracks"), ("sav_box_tracks", "sav_tracks"),
     ("sav_ref_tracks", "sav_tracks"), ("clip_explorer", "clip_explorer"), ("sav_stream", "sav_stream")],
)  # fmt: skip
def test_every_example_row_finds_its_task_and_is_sound(environment: str, task: str) -> None:
    file = search_root() / "environments" / environment / "data" / "example.jsonl"
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        assert task_of_row(row).name == task
        assert task_of_row(row).row_problems(row) == []


def test_a_row_of_no_task_is_refused() -> None:
    with pytest.raises(RowError, match=r"fits no registered task .*boxed_mcqa"):
        task_of_row({"a": 1})


def test_a_file_that_is_not_there_names_the_paths(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=f"tried: {tmp_path}/task.py"):
        load_task("task.py:Count", folders=[tmp_path])
    with pytest.raises(TaskError, match="unknown"):
        load_task("nothing_of_that_name")
    with pytest.raises(TaskError, match="refuses its settings"):
        load_task("boxed_mcqa", {"grading": "x"})


def test_usage_is_never_what_a_row_claims() -> None:
    task = load_task("clip_explorer", {"turn_cost": 0.1, "frame_cost": 0.01, "overview_frames": 4})
    claims = {**OWN, "episode": {"turns": 1, "frames_shown": 0}}
    stored = Answer([ASKED, SHOWN, SAID])
    assert task.score_raw(claims, stored).reward == pytest.approx(1 - 0.1 - 0.05)
    kept = Answer([ASKED, SHOWN, SAID], {"turns": 3, "frames_shown": 20})
    assert task.score_raw(claims, kept).reward == pytest.approx(1 - 0.2 - 0.2)
