# SPDX-License-Identifier: Apache-2.0
"""Rollouts that version 0.1 saved: today's code indexes them without findings and gives them the same rewards."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video import index_turns, nemo_rl_turns
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.clip_explorer.explorer import score_exploration
from nemo_gym_video.tasks.sav_stream.stream import score_stream
from nemo_gym_video.tasks.tracking.scoring import score_tracks

FOLDER = Path(__file__).parent / "fixtures" / "saved_0_1"
FILES = sorted(FOLDER.glob("*.jsonl"))
SAVED = [
    pytest.param(json.loads(line), id=f"{file.stem}-{number}")
    for file in FILES
    for number, line in enumerate(file.read_text("utf-8").splitlines())
]


def reward(saved: Mapping[str, Any]) -> float:
    """The reward of a saved rollout, from its row and its answer alone."""
    output = saved["response"]["output"]
    agent = saved["agent_ref"]["name"]
    if agent == "mcqa_simple_agent":
        return score_boxed_row(output, saved).reward
    if agent == "clip_explorer_agent":
        return float(score_exploration(output, saved, usage=saved["episode"])["reward"])
    if agent == "sav_stream_agent":
        return score_stream(output, saved).track.reward
    return score_tracks(output, saved).reward


def test_every_environment_of_version_0_1_is_there() -> None:
    names = "caprl_mcqa clip_explorer sav_box_tracks sav_pt_tracks sav_ref_tracks sav_stream video_grpo"
    assert [file.stem for file in FILES] == names.split()
    assert len(SAVED) == 2 * len(FILES)


@pytest.mark.parametrize("saved", SAVED)
def test_the_reward_is_the_saved_one(saved: dict[str, Any]) -> None:
    assert saved["mask_sample"] is False
    assert reward(saved) == saved["reward"]


@pytest.mark.parametrize("saved", SAVED)
def test_another_answer_gets_another_reward(saved: dict[str, Any]) -> None:
    changed = copy.deepcopy(saved)
    for item in changed["response"]["output"]:
        if item.get("type") == "message" and item.get("role") == "assistant":
            item["content"] = [{"type": "output_text", "text": "I cannot say.", "annotations": []}]
    assert reward(changed) == 0 < saved["reward"]


@pytest.mark.parametrize("saved", SAVED)
def test_the_index_has_every_occurrence_and_no_finding(saved: dict[str, Any]) -> None:
    index = index_turns(saved)
    assert index.findings == ()
    assert index.unclaimed == ()
    placed = [span for turn in index.turns for one in turn.media for span in one.spans]
    assert sum(end - start for start, end in placed) == saved["media_tokens"]
    assert sum(len(turn.media) for turn in index.turns) == len(saved["media_occurrences"])


@pytest.mark.parametrize("saved", SAVED)
def test_a_lost_run_is_found(saved: dict[str, Any]) -> None:
    """The first prompt that has any placeholders loses its first run of them."""
    (token,) = saved["media_token_ids"]
    damaged = copy.deepcopy(saved)
    prompts = (item.get("prompt_token_ids", []) for item in damaged["response"]["output"])
    prompt = next(ids for ids in prompts if token in ids)
    start = prompt.index(token)
    end = next(place for place in range(start, len(prompt)) if prompt[place] != token)
    del prompt[start:end]
    assert index_turns(damaged).findings != ()


@pytest.mark.parametrize("saved", SAVED)
def test_the_trainer_gets_every_media_token(saved: dict[str, Any]) -> None:
    rollout = nemo_rl_turns(saved)
    assert rollout.findings == ()
    assert all(turn.findings == () for turn in rollout.turns)
    assert sum(int(turn.feature_mask.sum()) for turn in rollout.turns) == saved["media_tokens"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_index_check_passes(file: Path) -> None:
    code = "from nemo_gym_video.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "index", str(file), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
