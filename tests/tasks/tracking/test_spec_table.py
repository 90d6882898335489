# SPDX-License-Identifier: Apache-2.0
"""The table of answers and rewards of the specification, and the points where the rule sets differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nemo_gym_video.tasks.tracking import score_tracks

RIGHT: list[dict[str, Any]] = [
    {"point": 1, "frame": 1, "xy": [500, 500], "visible": True},
    {"point": 1, "frame": 2, "visible": False},
]
BODY = json.dumps({"tracks": RIGHT})
OK = f"<answer>{BODY}</answer>"


def _with(*more: dict[str, Any]) -> str:
    return f"<answer>{json.dumps({'tracks': [*RIGHT, *more]})}</answer>"


def _raw(**fields: str) -> str:
    body = {"point": "1", "frame": "1", "xy": "[500, 500]", **fields}
    inner = ", ".join(f'"{key}": {value}' for key, value in body.items())
    return f'<answer>{{"tracks": [{{{inner}}}, {{"point": 1, "frame": 2, "visible": false}}]}}</answer>'


TABLE = [
    ("prose before", f"The dog runs. {OK}", 1, "scored"),
    ("closed think", f"<think>hm</think>{OK}", 1, "scored"),
    ("closed thinking, other case", f"<THINKING>hm</Thinking>{OK}", 1, "scored"),
    ("right only inside a closed think", f"<think>{OK}</think>done", 0, "no_envelope"),
    ("unclosed think", f"<think>so {OK}", 0, "thinking_unclosed"),
    ("orphan closing tag", f"well {_with(RIGHT[0])}</think>{OK}", 1, "scored"),
    ("think names the tags", f"<think>put it in <answer> tags</think>{OK}", 1, "scored"),
    ("two envelopes, last right", f'<answer>{{"tracks": []}}</answer> no: {OK}', 1, "scored"),
    ("two envelopes, last wrong", f'{OK} no: <answer>{{"tracks": []}}</answer>', 0, "scored"),
    ("upper case tags", f"<ANSWER>{BODY}</Answer>", 1, "scored"),
    ("no tags", BODY, 0, "no_envelope"),
    ("no closing tag", f"<answer>{BODY}", 0, "no_envelope"),
    ("no opening tag", f"{BODY}</answer>", 0, "no_envelope"),
    ("empty", "", 0, "empty"),
    ("white space", " \n\t", 0, "empty"),
    ("frame 2 left out", f"<answer>{json.dumps({'tracks': RIGHT[:1]})}</answer>", 0.5, "scored"),
    (
        "all absent",
        f"<answer>{json.dumps({'tracks': [{'point': 1, 'frame': f, 'visible': False} for f in (1, 2)]})}</answer>",
        0.5,
        "scored",
    ),
    ("no tracks", '<answer>{"tracks": []}</answer>', 0, "scored"),
    ("one entry at 1001", _with({"point": 1, "frame": 1, "xy": [1001, 500]}), 0, "out_of_range"),
    ("one entry below 0", _with({"point": 1, "frame": 1, "xy": [-0.5, 500]}), 0, "out_of_range"),
    ("reference frame echoed", _with({"point": 1, "frame": 0, "xy": [500, 500]}), 2 / 3, "scored"),
    ("a cell given twice", _with(RIGHT[0]), 2 / 3, "scored"),
    ("an unknown id", _with({"point": 2, "frame": 1, "xy": [1, 1]}), 2 / 3, "scored"),
    ("id true", _raw(point="true"), 0, "bad_id"),
    ("frame true", _raw(frame="true"), 0, "bad_frame"),
    ("id 1.0", _raw(point="1.0"), 1, "scored"),
    ("frame 1.5", _raw(frame="1.5"), 0, "bad_frame"),
    ("a 400-digit coordinate", _raw(xy=f"[{'9' * 400}, 1]"), 0, "out_of_range"),
    ("a 5000-digit integer", _raw(point="9" * 5000), 0, "number_too_long"),
    ("100,000 nested brackets", f"<answer>{'[' * 100_000}{']' * 100_000}</answer>", 0, "too_deep"),
    ("pixel coordinates", _raw(xy="[1350, 500]"), 0, "out_of_range"),
    ("x 300 in", _raw(xy="[300, 500]"), 1, "scored"),
    ("x 299.9 out", _raw(xy="[299.9, 500]"), 0.5, "scored"),
    ("x 699.9 in", _raw(xy="[699.9, 500]"), 1, "scored"),
    ("x 700 out", _raw(xy="[700, 500]"), 0.5, "scored"),
    ("NaN", _raw(xy="[NaN, 500]"), 0, "not_finite"),
    ("Infinity", _raw(xy="[Infinity, 500]"), 0, "not_finite"),
    ("1e999", _raw(xy="[1e999, 500]"), 0, "not_finite"),
    ("1e999 where nobody looks", _raw(note="1e999"), 0, "not_finite"),
    ("code fence", f"<answer>```json\n{BODY}\n```</answer>", 0, "not_json"),
    ("trailing comma", f"<answer>{BODY[:-2]},]}}</answer>", 0, "not_json"),
    ("byte order mark", f"<answer>\ufeff{BODY}</answer>", 0, "not_json"),
    ("no-break space around", f"<answer>\u00a0{BODY}</answer>", 0, "not_json"),
    ("white space of the RFC around", f"<answer>\r\n\t {BODY}\n</answer>", 1, "scored"),
    ("a list, not an object", f"<answer>{json.dumps(RIGHT)}</answer>", 0, "no_tracks"),
    ("absent with a location", _raw(visible="false"), 0, "absent_with_location"),
    ("absent with xy null", OK.replace("false", 'false, "xy": null'), 1, "scored"),
    ("visible without xy", '<answer>{"tracks":[{"point":1,"frame":1}]}</answer>', 0, "bad_location"),
    ("xy of three", _raw(xy="[1, 2, 3]"), 0, "bad_location"),
    ("xy with a boolean", _raw(xy="[true, 2]"), 0, "bad_location"),
    ("xy as an object", _raw(xy='{"x": 1, "y": 2}'), 0, "bad_location"),
    ("visible absent means visible", _raw(), 1, "scored"),
    ("visible null", _raw(visible="null"), 0, "bad_visible"),
    ("an entry that is a number", '<answer>{"tracks":[1]}</answer>', 0, "entry_no_object"),
    ("unknown keys", _raw(colour='"red"', bbox="[1]"), 1, "scored"),
    ("number string", _raw(point='"1"'), 0, "bad_id"),
    ("duplicate key", _raw(xy='[500, 500], "xy": [500, 500]'), 0, "duplicate_key"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reward", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_answer_earns_what_the_table_says(pt_row: dict[str, Any], answer: str, reward: float, reason: str) -> None:
    result = score_tracks(answer, pt_row)
    assert result.reward == pytest.approx(reward, abs=1e-12)
    assert result.reason == reason
    assert not result.mask_sample
    assert result.format_ok == (reason == "scored")
    assert sum(result.reward_components.values()) == pytest.approx(result.reward, abs=1e-9)
    assert result.explain().endswith(".")
    json.dumps(result.to_json(), allow_nan=False)


def test_grid_1000_is_the_last_pixel(pt_row: dict[str, Any], make_square: Callable[..., Any]) -> None:
    pt_row["objects"][0]["targets"][0]["mask"] = make_square(99, 100)
    pt_row["objects"][0]["targets"][0]["xy"] = None
    assert score_tracks(_raw(xy="[1000, 1000]"), pt_row).reward == 1
    assert score_tracks(_raw(xy="[1000, 989]"), pt_row).reward == 0.5


# What the rule sets make of the same answer: (answer, strict reward, baseline reward).
DIFFERENCES = [
    ("right", OK, 1, 1),
    ("a cell twice, the second right", _with({"point": 1, "frame": 1, "xy": [1, 1]}), 0.5 * 2 / 3, 2 / 3),
    ("visible and absent", _with({"point": 1, "frame": 1, "visible": False}), 0.5 * 2 / 3, 2 / 3),
    ("frame 99 three times", _with(*[{"point": 1, "frame": 99, "visible": False}] * 3), 2 / 5, 2 / 3),
    ("two frames not asked", _with(*[{"point": 1, "frame": f, "visible": False} for f in (8, 9)]), 1 / 2, 1 / 2),
    ("number strings", _raw(point='"1"', frame='"1"', xy='["500", "5e2"]'), 0, 1),
    ("a number string with an underscore", _raw(point='"1_0"'), 0, 0),
    ("a number string in other digits", _raw(point='"١"'), 0, 0),
    ("the string nan", _raw(xy='["nan", 500]'), 0, 0),
    ("duplicate key, last right", _raw(xy='[1, 1], "xy": [500, 500]'), 0, 1),
    ("duplicate key, last wrong", _raw(xy='[500, 500], "xy": [1, 1]'), 0, 0.5),
    ("visible is a word", _raw(visible='"no"'), 0, 1),
    ("visible null", _raw(visible="null"), 0, 1),
    ("visible 0", _raw(visible="0"), 0, 1),
    ("right only inside a closed think", f"<think>{OK}</think>done", 0, 1),
    ("unclosed think", f"<think>{OK}", 0, 1),
]


@pytest.mark.parametrize(
    ("answer", "strict", "baseline"), [row[1:] for row in DIFFERENCES], ids=[row[0] for row in DIFFERENCES]
)
def test_rule_sets_differ_where_they_should(
    pt_row: dict[str, Any], answer: str, strict: float, baseline: float
) -> None:
    assert score_tracks(answer, pt_row).reward == pytest.approx(strict, abs=1e-12)
    assert score_tracks(answer, pt_row, rules="baseline").reward == pytest.approx(baseline, abs=1e-12)


def test_one_dummy_entry_pays_under_baseline_only(ref_row: dict[str, Any]) -> None:
    targets = ref_row["objects"][0]["targets"]
    ref_row["objects"] = [{"id": 1, "targets": targets[:1] + [{"frame": f, "visible": False} for f in (2, 3, 4)]}]
    dummy = '<answer>{"tracks": [{"id": 7, "frame": 99, "xy": [1, 1]}]}</answer>'
    nothing = '<answer>{"tracks": []}</answer>'
    assert score_tracks(nothing, ref_row, rules="baseline").reward == 0
    assert score_tracks(dummy, ref_row, rules="baseline").reward == pytest.approx(0.6)
    assert score_tracks(dummy, ref_row).reward == 0


def _ref(places: dict[int, list[list[int]]]) -> str:
    tracks = [
        {"id": identity, "frame": frame, "xy": xy}
        for identity, track in places.items()
        for frame, xy in enumerate(track, start=1)
    ]
    return f"<answer>{json.dumps({'tracks': tracks})}</answer>"


UP, DOWN = [100, 100], [900, 900]


@pytest.mark.parametrize("rules", ["strict", "baseline"])
@pytest.mark.parametrize(
    ("places", "reward"),
    [
        ({1: [UP] * 4, 2: [DOWN] * 4}, 1),
        ({2: [UP] * 4, 1: [DOWN] * 4}, 1),
        ({70: [UP] * 4, -3: [DOWN] * 4}, 1),
        ({1: [UP, UP, DOWN, DOWN], 2: [DOWN, DOWN, UP, UP]}, 0.5),
        ({1: [UP] * 4}, 0.5),
        ({1: [UP] * 4, 2: [DOWN] * 4, 3: [UP] * 4}, 8 / 12),
    ],
    ids=["right", "permuted", "other ids", "swap in the middle", "one object only", "an id too many"],
)
def test_ref_ids_are_names(ref_row: dict[str, Any], places: Any, reward: float, rules: Any) -> None:
    assert score_tracks(_ref(places), ref_row, rules=rules).reward == pytest.approx(reward, abs=1e-12)


def test_ref_omission_is_a_claim_of_absence_once_assigned(ref_row: dict[str, Any]) -> None:
    for item in ref_row["objects"]:
        item["targets"][3] = {"frame": 4, "visible": False}
    # Object 1 is assigned and its omitted frame 4 earns; object 2 has no id, so it earns nothing.
    assert score_tracks(_ref({1: [UP] * 3}), ref_row).reward == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("bbox", "reward", "reason"),
    [
        ([100, 200, 300, 600], 1, "scored"),
        ([100, 200, 300, 400], 0.75, "scored"),
        ([300, 600, 400, 700], 0.5, "scored"),
        ([200, 200, 400, 600], 0.5 + 0.5 / 3, "scored"),
        ([300, 200, 100, 600], 0, "box_turned_round"),
        ([100, 200, 100, 600], 0, "box_turned_round"),
        ([100, 200, 300], 0, "bad_location"),
        ([100, 200, 300, 1000.5], 0, "out_of_range"),
    ],
)
def test_box_earns_its_iou(box_row: dict[str, Any], bbox: list[float], reward: float, reason: str) -> None:
    tracks = [{"box": 1, "frame": 1, "bbox": bbox}, {"box": 1, "frame": 2, "visible": False, "bbox": None}]
    result = score_tracks(f"<answer>{json.dumps({'tracks': tracks})}</answer>", box_row)
    assert result.reward == pytest.approx(reward)
    assert result.reason == reason
    assert result.in_mask_rate is None


@pytest.mark.parametrize(
    ("row_score", "argument", "reward"),
    [(None, None, 1), (0.2, None, 0.6), (None, 0.2, 0.6), (0.2, 0.9, 0.6), (0, 1.0, 0.5)],
)
def test_row_sets_what_absence_is_worth(
    pt_row: dict[str, Any], row_score: float | None, argument: float | None, reward: float
) -> None:
    pt_row["absence_score"] = row_score
    result = score_tracks(OK, pt_row, absence_score=argument)
    assert result.reward == pytest.approx(reward)
    assert result.localization == pytest.approx(0.5)


def test_result_says_what_was_expected_answered_and_earned(pt_row: dict[str, Any]) -> None:
    result = score_tracks(_raw(xy="[1, 1]"), pt_row)
    first, second = result.cells
    assert (first.expected, first.answered, first.location, first.earned) == ("visible", "visible", (1, 1), 0)
    assert (second.expected, second.answered, second.location, second.earned) == ("absent", "absent", None, 1)
    assert (result.in_mask_rate, result.visibility_accuracy, result.missing, result.extras) == (0, 1, 0, 0)
    assert result.object_scores[0].mean == 0.5
    left_out = score_tracks(f"<answer>{json.dumps({'tracks': RIGHT[:1]})}</answer>", pt_row)
    assert (left_out.missing, left_out.cells[1].answered, left_out.visibility_accuracy) == (1, "missing", 0.5)


def test_output_items_count_only_when_they_are_the_assistants(pt_row: dict[str, Any]) -> None:
    def message(role: str, *texts: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "output_text", "text": t} for t in texts]}

    split = [message("assistant", OK[:30], OK[30:])]
    assert score_tracks(split, pt_row).reward == 1
    others = [message("user", OK), {"type": "reasoning", "content": OK}, message("assistant", "I do not know")]
    assert score_tracks(others, pt_row).reward == 0
    assert score_tracks([*split, message("user", '<answer>{"tracks": []}</answer>')], pt_row).reward == 1
