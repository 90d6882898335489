# SPDX-License-Identifier: Apache-2.0
"""Hand-written rollouts with their right index: one file a shape of conversation."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.alignment import TurnIndex, index_turns
from nemo_gym_video.commands.index import index_json

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "rollouts").glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def as_written(result: TurnIndex, expected: dict[str, Any]) -> dict[str, Any]:
    """The result in the fixture's form: messages left out, ids only where the fixture names them."""
    found = index_json(result)
    assert all(finding["message"] for finding in found["findings"])
    found["findings"] = [{"kind": finding["kind"], "turn": finding["turn"]} for finding in found["findings"]]
    right = [*(one for turn in expected["turns"] for one in turn["media"]), *expected["unclaimed"]]
    mine = [*(one for turn in found["turns"] for one in turn["media"]), *found["unclaimed"]]
    for one, other in zip(mine, right, strict=False):
        if "media_id" not in other:
            assert one.pop("media_id")
    return found


def test_there_are_enough_shapes() -> None:
    assert len(FIXTURES) >= 30


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = load(path)
    before = copy.deepcopy(case["rollout"])
    result = index_turns(case["rollout"], **case["call"])
    assert case["rollout"] == before
    assert as_written(result, case["index"]) == case["index"]
    skipped = [[one.place.origin, one.place.message, one.place.part] for one in result.skipped]
    assert skipped == case.get("skipped", [])
    if "segments" in case:
        assert [
            {
                "segment": turn.segment,
                "new_from": turn.new_from,
                "carried": [[run.start, run.end] for run in turn.carried_runs],
            }
            for turn in result.turns
        ] == case["segments"]
    if "generated" in case:
        assert [[[run.start, run.end] for run in turn.generated_runs] for turn in result.turns] == case[
            "generated"
        ]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_spans_are_the_placeholders(path: Path) -> None:
    """Independent of the fixture's index: whatever is attributed is a maximal stretch of media ids, once."""
    case = load(path)
    result = index_turns(case["rollout"], **case["call"])
    ids = set(result.media_token_ids or ())
    for turn in result.turns:
        prompt = list(turn.prompt_token_ids)
        spans = [span for one in turn.media for span in one.spans]
        spans += [(run.start, run.end) for run in turn.carried_runs]
        assert len(spans) == len(set(spans))
        for start, end in spans:
            assert {*prompt[start:end]} <= ids
            assert len({*prompt[start:end]}) == 1
            assert end == len(prompt) or prompt[end] != prompt[start]
            assert start in (0, turn.new_from) or prompt[start - 1] != prompt[start]
        for one in turn.media:
            assert all(start >= turn.new_from for start, _ in one.spans)
            assert list(one.run_lengths) == [end - start for start, end in one.spans] or not one.spans


def test_repeats_of_one_prompt_share_their_assets() -> None:
    """G rollouts of one row, each parsed on its own, with answers of their own: same assets, own occurrences."""
    case = load(next(path for path in FIXTURES if path.stem == "later_turn_image"))
    repeats = []
    for number in range(4):
        rollout = json.loads(json.dumps(case["rollout"]))
        first, _, last = rollout["response"]["output"]
        first["generation_token_ids"] = [30 + number] * (number + 1)
        last["prompt_token_ids"] = [*first["prompt_token_ids"], *first["generation_token_ids"], 3, 9, 9, 2]
        if number % 2:
            rollout["response"]["output"][1]["content"][1]["image_url"] = f"other{number}.png"
        repeats.append(index_turns(rollout, media_token_ids=[9]))
    assert all(not index.findings for index in repeats)
    assert len({index.turns[0].media[0].media_id for index in repeats}) == 1
    assert len({index.turns[1].media[0].media_id for index in repeats}) == 3
    assert [index.turns[1].media[0].spans for index in repeats] == [((5 + n, 7 + n),) for n in range(4)]
