# SPDX-License-Identifier: Apache-2.0
"""What ``gym-video new`` writes: whole, with media that say what the rows claim, or not at all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import pytest
import yaml  # type: ignore[import-untyped]
from nemo_gym.environment.validation import validate_environment
from PIL import Image

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.launch.catalogue import load_environment
from nemo_gym_video.launch.inputs import read_inputs
from nemo_gym_video.launch.scaffold import class_name, scaffold_environment
from nemo_gym_video.servers.gym_root import search_root

COMMAND = [sys.executable, "-c", "from nemo_gym_video.cli import main; main()", "new"]
FILES = {"task.py", "config.yaml", "manifest.yaml", "README.md", "test_mine.py", "data"}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "data" / "example.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("multi_turn", [False, True])
def test_the_folder_is_one_that_gym_and_we_accept(
    tmp_path: Path, multi_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scaffold_environment("mine", tmp_path, multi_turn=multi_turn)
    assert folder == tmp_path / "environments" / "mine"
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(search_root()))
    report = validate_environment(folder / "manifest.yaml", folder / "config.yaml")
    assert report.warnings == ()
    assert [dataset.rows for dataset in report.datasets] == [5]
    entry = load_environment("mine", [tmp_path])
    (agent,) = entry.agents
    assert agent.task is not None
    assert (agent.task.reference, agent.media_roots) == (f"{folder / 'task.py'}:Mine", (folder / "data",))
    inputs = read_inputs(entry.examples, {agent.name})
    assert (len(inputs.rows), inputs.problems) == (5, [])
    block = yaml.safe_load((folder / "config.yaml").read_text())["mine_agent"]["responses_api_agents"]
    assert block["video_agent"].get("multi_turn", False) is multi_turn


def test_the_clips_are_as_bright_as_the_rows_say(tmp_path: Path) -> None:
    folder = scaffold_environment("mine", tmp_path, multi_turn=False)
    for row in rows_of(folder):
        video, text = row["responses_create_params"]["input"][0]["content"]
        with av.open(str(folder / "data" / video["video_url"])) as container:
            levels = [float(frame.to_ndarray(format="gray").mean()) for frame in container.decode(video=0)]
        seconds = [sum(levels[start : start + 8]) for start in range(0, 32, 8)]
        assert len(levels) == 32
        assert row["expected"] == "ABCD"[seconds.index(max(seconds))]
        assert f"{row['expected']}. from {'ABCD'.index(row['expected'])} s" in text["text"]
    assert {row["expected"] for row in rows_of(folder)} == set("ABCD")


def test_every_later_picture_has_one_more_colour(tmp_path: Path) -> None:
    folder = scaffold_environment("mine", tmp_path, multi_turn=True)
    for row in rows_of(folder):
        _, picture, text = row["responses_create_params"]["input"][0]["content"]
        shown = [picture["image_url"], *row["pictures"]]
        colours = [{color for _, color in Image.open(folder / "data" / path).getcolors() or ()} for path in shown]
        assert [len(found) for found in colours] == [2, 3, 4]
        (last,) = colours[2] - colours[1]
        names: dict[Any, str] = {
            (222, 38, 38): "red",
            (36, 186, 60): "green",
            (44, 76, 232): "blue",
            (232, 214, 30): "yellow",
        }
        assert f"{row['expected']}. {names[last]}" in text["text"]


@pytest.mark.parametrize("multi_turn", [False, True])
def test_a_task_is_short(tmp_path: Path, multi_turn: bool) -> None:
    """Under 40 lines; ceremony is what any task has: imports, class lines, signatures, decorators."""
    text = (scaffold_environment("mine", tmp_path, multi_turn=multi_turn) / "task.py").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    ceremony = [line for line in lines if line.lstrip().startswith(("import ", "from ", "class ", "def ", "@"))]
    assert len(lines) < (50 if multi_turn else 40)
    assert len(ceremony) < (14 if multi_turn else 10)
    assert "Mine" in {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Bad-name", "cannot be an environment's"),
        ("class", "cannot be an environment's"),
        ("", "cannot be an environment's"),
        ("../up", "cannot be an environment's"),
        ("zähler", "cannot be an environment's"),
        ("mine\n", "cannot be an environment's"),
        ("caprl_mcqa", "has an environment of this name"),
    ],
)
def test_a_name_that_cannot_be(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(PreparationError, match=said):
        scaffold_environment(name, tmp_path, multi_turn=False)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "environments" / "mine").mkdir(parents=True)
    with pytest.raises(PreparationError, match=r"exists already.*environments/mine"):
        scaffold_environment("mine", tmp_path, multi_turn=False)
    (tmp_path / "environments" / "linked").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PreparationError, match="exists already"):
        scaffold_environment("linked", tmp_path, multi_turn=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(PreparationError, match="cannot be written"):
        scaffold_environment("mine", tmp_path / "file", multi_turn=False)
    assert list((tmp_path / "environments" / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("count_cars", "CountCars"), ("task", "TaskTask"), ("row", "RowTask"), ("none", "NoneTask")],
)
def test_a_class_hides_nothing(name: str, expected: str) -> None:
    assert class_name(name) == expected


def test_the_command_says_what_to_run(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "mine"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == f"wrote {tmp_path / 'environments' / 'mine'}"
    assert "gym-video rollout --search-dir . --environment mine" in done.stdout
    again = subprocess.run([*COMMAND, "mine"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout, len(again.stderr.splitlines())) == (1, "", 1)
