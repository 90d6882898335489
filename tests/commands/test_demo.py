# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from nemo_gym_video.commands.demo import prepare_rows
from nemo_gym_video.commands.media_check import MediaCheck
from nemo_gym_video.errors import Where
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.prepare.synthetic.backgrounds import real_clips_installed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    return prepare_rows(tmp_path_factory.mktemp("demo"), rows=2, seed=3)


def test_every_environment_gets_its_rows(prepared: tuple[Path, list[str]]) -> None:
    file, environments = prepared
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    agents = [row["agent_ref"]["name"] for row in rows]
    assert len(environments) == 6
    assert [agents.count(agent) for agent in dict.fromkeys(agents)] == [2] * 6


def test_the_rows_agents_are_those_of_the_environments(prepared: tuple[Path, list[str]]) -> None:
    file, environments = prepared
    declared = {
        name
        for environment in environments
        for name, block in yaml.safe_load(
            (ROOT / "environments" / environment / "config.yaml").read_text()
        ).items()
        if "responses_api_agents" in block
    }
    assert {json.loads(line)["agent_ref"]["name"] for line in file.open(encoding="utf-8")} == declared


def test_all_media_of_the_rows_open(prepared: tuple[Path, list[str]]) -> None:
    file, _ = prepared
    check = MediaCheck(MediaSources(SourcePolicy(roots=(file.parent,))), limits=MediaLimits())
    problems = [problem for line in file.open(encoding="utf-8") for problem in check(json.loads(line), Where())]
    check.close()
    assert problems == []
    assert check.opened > 50


def test_real_footage_is_part_of_the_demo(prepared: tuple[Path, list[str]]) -> None:
    file, _ = prepared
    assert real_clips_installed()
    assert list((file.parent / "native" / "montage").glob("*.mp4"))
