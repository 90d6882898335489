# SPDX-License-Identifier: Apache-2.0
"""What docs/contract.md says works."""

import json
import re
from pathlib import Path

from nemo_gym_video.contract import RowContract

PAGE = (Path(__file__).parents[2] / "docs/contract.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_python_runs() -> None:
    code = blocks("python")
    assert len(code) == 2
    for block in code:
        exec(compile(block, "docs/contract.md", "exec"), {})


def test_the_hand_written_contracts_are_read() -> None:
    found = [json.loads(block) for block in blocks("json")[1:3]]
    assert [RowContract.from_json(value).completed().total for value in found] == [8064, 286]
