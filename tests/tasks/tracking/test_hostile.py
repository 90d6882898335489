# SPDX-License-Identifier: Apache-2.0
"""No text makes scoring raise, and every result keeps its promises. ``python -m fuzz`` goes on where this ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed
from nemo_gym_video.tasks.tracking import TrackResult, TrackRow, score_tracks
from nemo_gym_video.tasks.tracking.schema import TASKS

MASK = {"size": [10, 10], "counts": [0, 50, 50]}
TARGETS = [
    {"frame": 1, "visible": True, "mask": MASK, "bbox": [0, 0, 500, 1000], "xy": [10, 10]},
    {"frame": 2, "visible": False},
]
ROWS = {
    task: TrackRow.from_row({"task": task, "objects": [{"id": n, "targets": TARGETS} for n in (1, 2)]})
    for task in TASKS
}
OPTIONS = [{"A": "Black"}, {"B": "White"}]


def check(result: TrackResult) -> None:
    assert 0 <= result.reward <= 1
    assert not result.mask_sample
    assert sum(result.reward_components.values()) == pytest.approx(result.reward, abs=1e-9)
    assert len(result.cells) == 4
    assert result.explain()
    json.dumps(result.to_json(), allow_nan=False)
    if result.reason != "scored":
        assert (result.reward, result.format_ok, result.missing, result.visibility_accuracy) == (0, False, 4, 0)


PIECES = st.sampled_from(
    ["<answer>", "</answer>", '{"tracks":[', "]}", '{"point":1,"id":1,"box":1,"frame":1,', '"xy":[1,2]', "}", ",",
     '"bbox":[1,2,3,4]', '"visible":false', '"visible":true',
     '{"point":2,"id":9,"box":2,"frame":2,"visible":false}',
     "<think>", "</think>", "\ud800", '"', "\\", "NaN", "1e999", "9" * 5000, "[", "\ufeff", " "]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join) | st.text(st.characters(exclude_categories=()))


@settings(max_examples=400, deadline=None)
@given(
    text=TEXTS, wrapped=st.booleans(), task=st.sampled_from(TASKS), rules=st.sampled_from(["strict", "baseline"])
)
def test_any_text_is_scored(text: str, wrapped: bool, task: str, rules: Any) -> None:
    check(score_tracks(f"<answer>{text}</answer>" if wrapped else text, ROWS[task], rules=rules))


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1002) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["point", "id", "box", "frame", "xy", "bbox", "visible", "tracks"]), inner
        )
    ),
    max_leaves=15,
)


@settings(max_examples=300, deadline=None)
@given(value=JSON, task=st.sampled_from(TASKS), rules=st.sampled_from(["strict", "baseline"]))
def test_any_json_is_scored(value: Any, task: str, rules: Any) -> None:
    for body in (value, {"tracks": value}, {"tracks": [value]}):
        check(score_tracks(f"<answer>{json.dumps(body)}</answer>", ROWS[task], rules=rules))


OUTPUT: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.sampled_from(["message", "assistant", "output_text", "<answer>{}</answer>"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "content", "text"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(OUTPUT, max_size=4))
def test_any_output_items_are_scored(output: list[Any]) -> None:
    check(score_tracks(output, ROWS["pt"]))
    assert not score_boxed(output, options=OPTIONS, expected_answer="B").mask_sample


SIZE = 300_000
LARGE = {
    "openings": "<answer>" * SIZE,
    "closings": "</answer>" * SIZE,
    "an opening and spaces": "<answer>" + " " * SIZE,
    "thoughts": "<think></think>" * SIZE,
    "open thoughts": "<think><thinking>" * SIZE,
    "crossed thoughts": "<think><thinking></think></thinking>" * (SIZE // 4),
    "boxes": "\\boxed{" * SIZE,
    "braces": "\\boxed{" + "{" * SIZE + "}" * SIZE,
    "box of spaces": "\\boxed{\\text{" + " " * SIZE + "B}}",
    "combining marks": "\\boxed{" + "a\u0315\u0300" * SIZE + "}",
    "brackets": f"<answer>{'[' * SIZE}</answer>",
    "bracket pairs": f"<answer>[{'[],' * SIZE}[]]</answer>",
    "objects": f"<answer>[{'{},' * SIZE}1]</answer>",
    "quotes": f"<answer>{'"' * SIZE}</answer>",
    "backslashes": '<answer>"' + "\\" * SIZE + '"</answer>',
    "digits": f"<answer>{'9' * SIZE}</answer>",
    "numbers": f"<answer>[{'1e200,' * SIZE}1]</answer>",
    "keys": "<answer>{" + '"a":1,' * SIZE + '"b":1}</answer>',
    "surrogates": "\ud800" * SIZE,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_large_hostile_text_is_refused_with_a_reason(text: str) -> None:
    result = score_tracks(text, ROWS["ref"])
    check(result)
    assert result.reason != "scored"
    boxed = score_boxed(text, options=OPTIONS, expected_answer="B", grading_mode="lenient_boxed")
    assert boxed.reward == 0
    assert boxed.reason not in ("correct", "wrong_letter")


def test_an_answer_over_the_limit_is_refused_and_one_below_is_not() -> None:
    right = '<answer>{"tracks": [{"point": 1, "frame": 1, "xy": [10, 10]}]}</answer>'
    assert score_tracks("x" * (1 << 20) + right, ROWS["pt"]).reward > 0
    assert score_tracks("x" * (1 << 22) + right, ROWS["pt"]).reason == "too_long"
    assert score_tracks(right, ROWS["pt"], max_chars=10).reason == "too_long"
