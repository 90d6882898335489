# SPDX-License-Identifier: Apache-2.0
"""The published JSON Schemas accept exactly what the strict parser accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nemo_gym_video.tasks.tracking import Task, answer_schema, answer_validator
from nemo_gym_video.tasks.tracking.entries import AnswerRefused, parse_tracks
from nemo_gym_video.tasks.tracking.schema import ID_KEYS, LOCATION_KEYS, TASKS

TASK = st.sampled_from(TASKS)
NUMBER = st.sampled_from([0, 1, 5, 300, 999.5, 1000, 1000.0, 1001, -1, -0.0, 1e300, 10**30, 2.0])
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, "1", "true", 1.5, [], {}, [1], 1.0, 2, -3, 10**20]
)
WHOLE = st.sampled_from([1, 2, 1.0, 0, 7])
PLACE = (
    st.lists(NUMBER, min_size=2, max_size=2)
    | st.lists(NUMBER, min_size=4, max_size=4)
    | st.lists(NUMBER | ODD, max_size=5)
    | ODD
)
GOOD_BOX = st.just([100, 200, 300, 400.5])
FIELDS = st.sampled_from(["point", "box", "id", "frame", "xy", "bbox", "visible", "note", "Frame"])


@st.composite
def _entry(draw: Any) -> Any:
    if draw(st.integers(0, 15)) == 0:
        return draw(ODD | st.dictionaries(FIELDS, ODD | PLACE, max_size=6))
    fields: dict[str, Any] = {key: draw(WHOLE | ODD) if draw(st.integers(0, 9)) == 0 else draw(WHOLE)
                              for key in ("point", "box", "id", "frame")}  # fmt: skip
    if draw(st.booleans()):
        fields["visible"] = draw(st.booleans() if draw(st.integers(0, 4)) else ODD)
    for key, good in (("xy", st.just([500, 0])), ("bbox", GOOD_BOX)):
        kind = draw(st.integers(0, 4))
        if kind == 1:
            fields[key] = draw(PLACE)
        elif kind == 2:
            fields[key] = None
        elif kind > 2:
            fields[key] = draw(good)
    return fields


ANSWERS = st.fixed_dictionaries({"tracks": st.lists(_entry(), max_size=3) | ODD}, optional={"note": ODD}) | ODD


def _parses(answer: Any, task: Any) -> bool:
    try:
        parse_tracks(json.dumps(answer), task)
    except AnswerRefused:
        return False
    return True


@settings(max_examples=1500, deadline=None)
@given(answer=ANSWERS, task=TASK)
def test_parser_and_schema_agree(answer: Any, task: Any) -> None:
    assert _parses(answer, task) == answer_validator(task).is_valid(answer)


@settings(max_examples=300, deadline=None)
@given(answer=ANSWERS, task=TASK)
def test_a_plain_validator_differs_on_the_order_of_corners_only(answer: Any, task: Any) -> None:
    accepted = Draft202012Validator(answer_schema(task)).is_valid(answer)
    assert accepted or not _parses(answer, task)
    if accepted and not _parses(answer, task):
        assert task == "box"
        boxes = [entry["bbox"] for entry in answer["tracks"] if entry.get("visible", True)]
        assert any(x1 >= x2 or y1 >= y2 for x1, y1, x2, y2 in boxes)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"visible": True}, True),
        ({"frame": 1.0}, True),
        ({"note": [1]}, True),
        ({"frame": True}, False),
        ({"frame": 1.5}, False),
        ({"frame": "1"}, False),
        ({"visible": None}, False),
        ({"visible": 1}, False),
        ({"visible": 0}, False),
        ({"visible": "false"}, False),
        ({"visible": False}, False),
        ({"visible": False, "LOCATION": None}, True),
        ({"LOCATION": None}, False),
        ({"LOCATION": [0, 0]}, "point"),
        ({"LOCATION": [1000, 1000.0]}, "point"),
        ({"LOCATION": [0, 0, 1, 1]}, "box"),
        ({"LOCATION": [0, 0, 0, 1]}, False),
        ({"LOCATION": [0, 1001]}, False),
        ({"LOCATION": [False, 1]}, False),
    ],
    ids=str,
)
def test_known_entries(task: Task, change: dict[str, Any], valid: Any) -> None:
    location = [10, 10, 20, 20] if task == "box" else [10, 10]
    entry = {ID_KEYS[task]: 1, "frame": 1, LOCATION_KEYS[task]: location}
    entry |= {LOCATION_KEYS[task] if key == "LOCATION" else key: value for key, value in change.items()}
    expected = valid if isinstance(valid, bool) else (valid == "box") == (task == "box")
    assert _parses({"tracks": [entry]}, task) == expected
    assert answer_validator(task).is_valid({"tracks": [entry]}) == expected


@pytest.mark.parametrize("task", TASKS)
def test_schema_is_a_schema_and_a_copy(task: Task) -> None:
    schema = answer_schema(task)
    Draft202012Validator.check_schema(schema)
    schema["properties"].clear()
    assert answer_schema(task)["properties"]


def test_entries_are_limited_by_both() -> None:
    entry = {"point": 1, "frame": 1, "visible": False}
    assert not _parses({"tracks": [entry] * 100_001}, "pt")
    assert answer_schema("pt")["properties"]["tracks"]["maxItems"] == 100_000
    assert _parses({"tracks": [entry] * 100_000}, "pt")
