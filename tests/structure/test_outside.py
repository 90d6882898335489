# SPDX-License-Identifier: Apache-2.0
"""An environment outside the checkout, with the package installed from the wheel into an environment of its own.

What ``gym-video new`` writes lists, validates, rolls out through real servers, scores again without them, indexes
without a finding, and has blind baselines; a broken one says what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GYM = "import sys; from nemo_gym.cli.main import main; sys.exit(main())"
NAMES = {"clips": [], "scenes": ["--multi-turn"]}

pytestmark = pytest.mark.servers


@dataclass(frozen=True)
class Outside:
    """A folder with its own Python environment, far from the checkout."""

    folder: Path
    python: Path

    def run(self, *command: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """One command in the folder; its exit code must be ``code``."""
        hidden = ("PYTHONPATH", "NEMO_GYM_EXTRA_ROOTS", "VIRTUAL_ENV")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

    def gym_video(self, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """The installed command."""
        return self.run(self.python.with_name("gym-video"), *words, code=code)

    def gym(self, *words: str, code: int = 0) -> str:
        """Gym's own command, with what it says joined to one line of words."""
        done = self.run(self.python, "-c", GYM, *words, code=code)
        return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    """The wheel, built and installed; what it depends on is shared with the environment of these tests."""
    folder = tmp_path_factory.mktemp("outside")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    own = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    # A plain search path: the .pth files in it (the checkout's among them) are not read.
    (own / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (folder / "project").mkdir()
    installed = Outside(folder / "project", python)
    where = installed.run(python, "-c", "import nemo_gym_video; print(nemo_gym_video.__file__)").stdout
    assert Path(where.strip()).is_relative_to(own)
    return installed


@pytest.fixture(scope="module")
def rolled_out(outside: Outside) -> Outside:
    """Both kinds of environment, written and rolled out together in one start of the servers."""
    chosen: list[str] = []
    for name, options in NAMES.items():
        outside.gym_video("new", name, *options)
        chosen += ["--environment", name]
    outside.gym_video("rollout", "--search-dir", ".", *chosen, "--output", outside.folder / "out")
    return outside


def rollouts(outside: Outside, name: str) -> list[dict[str, Any]]:
    lines = (outside.folder / "out" / "rollouts.jsonl").read_text("utf-8").splitlines()
    agent = f"{name}_agent"
    return [found for found in map(json.loads, lines) if found["agent_ref"]["name"] == agent]


@pytest.mark.parametrize("name", NAMES)
def test_gym_lists_and_accepts_it(rolled_out: Outside, name: str) -> None:
    ours = rolled_out.gym_video("root").stdout.strip()
    assert name in rolled_out.gym("list", "environments", "--search-dir", ".")
    assert "Datasets: example: 5 rows" in rolled_out.gym("env", "validate", name, "--search-dir", ".")
    said = rolled_out.gym("env", "validate", name, "--search-dir", ".", "--search-dir", ours)
    assert "profile=custom-gym-agent-loop inferred=custom-gym-agent-loop" in said


@pytest.mark.parametrize("name", NAMES)
def test_the_embedded_policy_is_right_by_looking(rolled_out: Outside, name: str) -> None:
    found = rollouts(rolled_out, name)
    assert [rollout["reward"] for rollout in found] == [1.0] * 5
    assert not any(rollout.get("mask_sample") for rollout in found)
    assert {rollout["reason"] for rollout in found} == {"right"}


def test_a_picture_comes_on_every_later_turn(rolled_out: Outside) -> None:
    for rollout in rollouts(rolled_out, "scenes"):
        items = rollout["response"]["output"]
        shown = [
            part["image_url"]
            for item in items
            if item.get("role") == "user"
            for part in item["content"]
            if part["type"] == "input_image"
        ]
        assert [Path(url).name for url in shown] == [Path(path).name for path in rollout["pictures"]]
        assert rollout["termination_reason"] == "all_shown"
        assert sum(bool(item.get("generation_token_ids")) for item in items) == 3


def test_every_turn_is_credited_with_its_media(rolled_out: Outside) -> None:
    file = rolled_out.folder / "out" / "rollouts.jsonl"
    rolled_out.gym_video("index", file, "--check")
    # The twin that must fail: one row's first picture is taken out of its prompt tokens' media.
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for item in lines[0]["response"]["output"]:
        if item.get("prompt_token_ids"):
            item["prompt_token_ids"] = item["prompt_token_ids"][:5]
    broken = rolled_out.folder / "broken.jsonl"
    broken.write_text(json.dumps(lines[0]) + "\n", encoding="utf-8")
    rolled_out.gym_video("index", broken, "--check", code=1)


@pytest.mark.parametrize("name", NAMES)
def test_it_scores_again_without_a_server(rolled_out: Outside, name: str) -> None:
    own = rolled_out.folder / f"{name}.jsonl"
    own.write_text("".join(json.dumps(found) + "\n" for found in rollouts(rolled_out, name)), encoding="utf-8")
    task = f"environments/{name}/task.py"
    scored = rolled_out.gym_video("verify", "--task", task, "--rollouts", own).stdout.splitlines()
    assert [json.loads(line)["reward"] for line in scored] == [1.0] * 5
    assert "tried" in rolled_out.gym_video("verify", "--task", "no/task.py", "--rollouts", own, code=1).stderr


@pytest.mark.parametrize("name", NAMES)
def test_it_has_blind_baselines(rolled_out: Outside, name: str) -> None:
    folder = rolled_out.folder / "environments" / name
    words: list[str | Path] = [
        "baselines",
        "--jsonl",
        "--task",
        folder / "task.py",
        folder / "data" / "example.jsonl",
    ]
    (found,) = map(json.loads, rolled_out.gym_video(*words).stdout.splitlines())
    assert (found["data_set"], found["rows"], found["unreadable"]) == (f"{name}_agent", 5, 0)
    # Five rows over four letters: the letter of two rows is the best guess.
    assert max(found["rewards"].values()) == pytest.approx(0.4)
    rolled_out.gym_video("validate", "--task", folder / "task.py", folder / "data" / "example.jsonl")


def test_a_name_that_is_nowhere_is_told_what_is_where(rolled_out: Outside) -> None:
    words = ["rollout", "--search-dir", ".", "--environment", "clip", "--output", str(rolled_out.folder / "none")]
    done = rolled_out.gym_video(*words, code=1)
    assert f"clips, scenes (in {rolled_out.folder})" in done.stderr
    assert "caprl_mcqa" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_its_own_test_passes(rolled_out: Outside) -> None:
    tests = rolled_out.folder / "environments" / "clips"
    rolled_out.run(rolled_out.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "pays", tests)
