# SPDX-License-Identifier: Apache-2.0
"""The code on the trainers' pages runs as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "media").mkdir()
    Image.new("RGB", (4, 4), (1, 2, 3)).save(tmp_path / "media" / "a.png")
    value: dict[str, Any] = json.loads((ROOT / "tests" / "fixtures" / "rollouts" / "one_image.json").read_text())
    found: dict[str, Any] = value["rollout"]
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(found) + "\n")
    return found


def test_the_nemo_rl_page(rollout: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("nemo_rl.md"):
        exec(block, names)
    user, assistant = names["message_log"](rollout)
    assert [np.asarray(pixels).shape for pixels in user["images"]] == [(4, 4, 3)]
    assert user["videos"] == []
    assert assistant["loss_mask"].tolist() == [True, True]


def test_the_turns_page(rollout: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("turns.md"):
        exec(block, names)
    assert capsys.readouterr().out == "0 image a.png user ()\n"
    assert names["pixels"].shape == (4, 4, 3)
