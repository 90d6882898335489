# SPDX-License-Identifier: Apache-2.0
"""Mixed rows of all four environments through real servers and the embedded baseline."""

import json
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.tasks.blind_policies import best_blind

pytestmark = pytest.mark.servers

MEDIA = 18


def media_runs(ids: list[int]) -> list[int]:
    """Lengths of the maximal stretches of the media id, found without the package's own code."""
    return [len(list(group)) for is_media, group in groupby(ids, key=lambda one: one == MEDIA) if is_media]


@pytest.fixture(scope="module")
def rollouts(mixed: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One rollout of every row, one at a time."""
    found: list[dict[str, Any]] = mixed.rollouts(tmp_path_factory.mktemp("quiet") / "out", concurrency=1)
    return found


def test_every_region_has_the_length_of_its_run(rollouts: list[dict[str, Any]]) -> None:
    assert len(rollouts) == 20
    for rollout in rollouts:
        (item,) = [one for one in rollout["response"]["output"] if one.get("generation_token_ids")]
        told = [
            length
            for one in rollout["media_occurrences"]
            for length in one["model_specific_sidecars"]["run_lengths"]
        ]
        assert told == media_runs(item["prompt_token_ids"])
        assert sum(told) == rollout["media_tokens"] > 0
        assert rollout["media_findings"] == []
        assert not rollout["mask_sample"]


def test_modes_and_counts_survive_a_crowd(mixed: Any, rollouts: list[dict[str, Any]], tmp_path: Path) -> None:
    crowd = mixed.rollouts(tmp_path / "crowd", concurrency=64, num_repeats=4)
    assert len(crowd) == 4 * len(rollouts) == 80
    contracts = {rollout["_ng_task_index"]: rollout["media_contract"] for rollout in rollouts}
    rows = {index: item.row for index, item in enumerate(mixed.plan.inputs.rows)}
    for rollout in crowd:
        index = rollout["_ng_task_index"]
        assert rollout["media_contract"] == contracts[index]
        assert rollout["media_contract"]["mode"] == rollout["media_mode"]
        assert rollout["responses_create_params"]["input"] == rows[index]["responses_create_params"]["input"]
    modes = Counter(rollout["media_mode"] for rollout in rollouts)
    assert len(modes) > 1


def test_a_carried_contract_arrives_bit_for_bit(mixed: Any, tmp_path: Path) -> None:

    built = {
        rollout["_ng_task_index"]: rollout["media_contract"] for rollout in mixed.rollouts(tmp_path / "built")
    }
    items = [replace(item, row={**item.row, "media_contract": built[index]})
             for index, item in enumerate(mixed.plan.inputs.rows)]  # fmt: skip
    inputs = replace(mixed.plan.inputs, rows=items)
    for rollout in mixed.rollouts(tmp_path / "carried", inputs=inputs):
        assert rollout["media_contract"] == built[rollout["_ng_task_index"]]


def test_metrics_come_from_the_verifiers(mixed: Any, tmp_path: Path) -> None:
    mixed.rollouts(tmp_path / "out", num_repeats=2)
    metrics = {entry["agent_ref"]["name"]: entry for entry in json.loads(
        (tmp_path / "out" / "rollouts_aggregate_metrics.json").read_text())}  # fmt: skip
    tracks = metrics["sav_box_tracks_agent"]["agent_metrics"]
    assert tracks["mean/reward"] > 0.5
    assert tracks["reason/scored"] == 10
    assert 0 < tracks["measured/mean_iou"] <= 1
    assert {"pass@2/reward", "box/pass@2/reward"} <= set(tracks)
    letters = metrics["mcqa_simple_agent"]["agent_metrics"]
    assert "majority@2/reward" in letters


def test_the_baseline_is_no_blind_guess(mixed: Any, rollouts: list[dict[str, Any]]) -> None:
    for agent in ("sav_pt_tracks_agent", "sav_box_tracks_agent", "sav_ref_tracks_agent"):
        own = [item.row for item in mixed.plan.inputs.rows if item.agent == agent]
        blind = best_blind(own)
        rewards = [one["reward"] for one in rollouts if one["agent_ref"]["name"] == agent]
        assert blind is not None
        assert sum(rewards) / len(rewards) >= blind + 0.2
