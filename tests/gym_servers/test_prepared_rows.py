# SPDX-License-Identifier: Apache-2.0
"""Prepared rows through real servers: odd file names and a symlinked root, from the native files to the reward."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.prepare.synthetic.clips import synthesize

pytestmark = pytest.mark.servers

NAMES = ("a b.mp4", "50%.mp4", "no#1.mp4", 'it\'s "so".mp4', "дом 日本.mp4", "%41.mp4")


def prepared(*arguments: str | Path) -> None:
    done = CliRunner().invoke(build_app("prepare"), ["prepare", *map(str, arguments)])
    assert done.exit_code == 0, done.output


def test_odd_names_and_links_reach_the_verifier(command: Any, tmp_path: Path) -> None:
    made = synthesize(tmp_path / "native", scenes=0, montages=1, size=(128, 72), real=False)
    clip = made.root / "montage" / "montage_000001.mp4"
    record = json.loads(made.questions.read_text())
    question = record["reward_model"]["ground_truth"][0]
    folder = tmp_path / "real folder"
    folder.mkdir()
    lines = []
    for number, name in enumerate(NAMES):
        shutil.copy(clip, folder / name)
        # A word more or less keeps equal questions on equal clips from being duplicates.
        fields = {**question, "question": f"Clip {number}. {question['question']}"}
        lines.append({**record, "videos": [name], "reward_model": {"ground_truth": [fields]}})
    linked = tmp_path / "a link"
    linked.symlink_to(folder, target_is_directory=True)
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    rollouts = []
    for transport in ("video", "frames"):
        rows = tmp_path / f"rows of {transport} #1"
        prepared("caprl", "--input", questions, "--video-root", linked, "--transport", transport,
                 "--num-frames", "32", "--validation-share", "0", "--output", rows)  # fmt: skip
        output = tmp_path / f"out {transport}"
        done: subprocess.CompletedProcess[str] = command(
            "rollout", "--environment", "caprl_mcqa", "--input", rows / "train.jsonl",
            "--media-root", rows, "--media-root", linked, output=output,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rollouts += [json.loads(line) for line in (output / "rollouts.jsonl").read_text().splitlines()]
    assert len(rollouts) == 2 * len(NAMES)
    assert all(not one["mask_sample"] for one in rollouts)
    assert {one["reward"] for one in rollouts} == {1.0}
