# SPDX-License-Identifier: Apache-2.0
"""``make demo`` gives every row the reward that version 0.1 gave it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.commands.demo import prepare_rows

pytestmark = pytest.mark.servers

SAVED = Path(__file__).resolve().parents[1] / "fixtures" / "demo_0_1.json"
ROWS, SEED = 6, 7


@pytest.fixture(scope="module")
def saved() -> dict[str, list[float]]:
    return dict(json.loads(SAVED.read_text("utf-8")))


def test_the_rewards_of_every_demo_row(command: Any, saved: dict[str, list[float]], tmp_path: Path) -> None:
    rows, environments = prepare_rows(tmp_path / "demo", rows=ROWS, seed=SEED)
    assert environments == list(saved)
    words = [word for name in environments for word in ("--environment", name)]
    output = tmp_path / "out"
    done = command("rollout", *words, "--input", rows, output=output)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = defaultdict(list)
    rollouts = [json.loads(line) for line in (output / "rollouts.jsonl").read_text("utf-8").splitlines()]
    for one in sorted(rollouts, key=lambda one: one["_ng_task_index"]):
        found[environments[one["_ng_task_index"] // ROWS]].append(one["reward"])
    assert dict(found) == saved


def test_the_saved_rewards_could_tell_a_change(saved: dict[str, list[float]]) -> None:
    assert all(len(rewards) == ROWS for rewards in saved.values())
    partial = [reward for rewards in saved.values() for reward in rewards if 0 < reward < 1]
    assert len(set(partial)) >= 7
