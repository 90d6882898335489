# SPDX-License-Identifier: Apache-2.0
"""What docs/multi_turn.md says works: its environment runs through the real agent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.servers.gym_root import search_root
from tests.servers.in_process import World, verifier

PAGE = (search_root() / "docs" / "multi_turn.md").read_text("utf-8")


@pytest.fixture
def world(tmp_path: Path) -> World:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "task.py").write_text(code)
    server = verifier(f"{tmp_path}/task.py:Slides")
    return World("slides", ["next", "I see it: found in 2"], tmp_path, server=server, roots=[str(tmp_path)])


def slides(folder: Path, expected: int) -> dict[str, Any]:
    for index in range(3):
        Image.new("RGB", (64, 48), (index * 90, 9, 9)).save(folder / f"{index}.png")
    return {
        "pictures": [str(folder / f"{index}.png") for index in range(3)],
        "expected_picture": expected,
        "responses_create_params": {"input": [{"role": "user", "content": "Find the darker one."}]},
    }


@pytest.mark.parametrize(("expected", "reward"), [(2, 1.0), (3, 0.0)])
def test_the_environment_runs(world: World, tmp_path: Path, expected: int, reward: float) -> None:
    result = world.run(slides(tmp_path, expected))
    assert result["reward"] == reward
    assert result["termination_reason"] == "answered"
    assert result["episode"] == {"shown": 2}
    assert result["media_findings"] == []
    index = index_turns(result)
    assert index.findings == ()
    assert index.unclaimed == ()
    assert [[Path(media.source).name for media in turn.media] for turn in index.turns] == [["0.png"], ["1.png"]]


def test_the_end_without_an_answer(world: World, tmp_path: Path) -> None:
    world.model.script = ["next"]
    result = world.run(slides(tmp_path, 2))
    assert result["termination_reason"] == "all_shown"
    assert result["reason"] == "no_answer"
    assert result["reward"] == 0.0


def test_a_bad_row_of_it_is_masked(world: World, tmp_path: Path) -> None:
    result = world.run({**slides(tmp_path, 2), "pictures": []})
    assert result["mask_sample"] is True
    assert result["failure_kind"] == "nemo_gym_video:bad_row"
    assert "field 'pictures'" in result["failure_reason"]
