# SPDX-License-Identifier: Apache-2.0
"""Rows are refused when they are read, with everything that is wrong with them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.tracking import TrackRow, check_track_row, score_tracks

RUNS = {"size": [2, 2], "counts": [1, 2, 1]}
PT: dict[str, Any] = {
    "task": "pt",
    "coordinate_space": "grid1000",
    "reference_frame": 0,
    "objects": [
        {"id": 1, "reference_xy": [1, 2], "targets": [{"frame": 1, "visible": True, "mask": RUNS}]},
        {
            "id": 2,
            "reference_frame": 4,
            "targets": [{"frame": 1, "visible": False}, {"frame": 2, "visible": False}],
        },
    ],
}
BOX: dict[str, Any] = {
    "task": "box",
    "objects": [{"id": 1, "targets": [{"frame": 1, "visible": True, "bbox": [0, 0, 10, 10.5]}]}],
}
REF: dict[str, Any] = {
    "task": "ref",
    "objects": [{"id": 1, "targets": [{"frame": 1, "visible": True, "mask": RUNS}]}],
}


def put(row: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of ``row`` with the place named by a dotted path set, or removed when ``value`` is ``...``."""
    row = copy.deepcopy(row)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = row
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return row


TARGET = "objects.0.targets.0"
GOOD = [
    PT,
    BOX,
    REF,
    put(PT, "coordinate_space", ...),
    put(PT, "coordinate_space", None),
    put(PT, "objects.0.reference_xy", None),
    put(PT, "objects.0.id", 7.0),
    put(PT, "objects.0.id", -1),
    put(PT, f"{TARGET}.xy", [500, 500.5]),
    put(PT, f"{TARGET}.mask.counts", "121"),
    put(PT, "absence_score", 0),
    put(PT, "absence_score", None),
    put(PT, "other", {"anything": [float("nan")]}),
    put(BOX, f"{TARGET}.mask", {"size": "ignored"}),
    put(PT, "objects.1.targets.0.mask", None),
]


@pytest.mark.parametrize("row", GOOD, ids=range(len(GOOD)))
def test_row_is_read(row: dict[str, Any]) -> None:
    found, problems = check_track_row(row)
    assert problems == []
    assert found == TrackRow.from_row(row)


BAD = [
    (put(PT, "task", "points"), "task does not fit.*'pt', 'box' or 'ref'"),
    (put(PT, "task", ...), "task is missing"),
    (put(PT, "task", ["pt"]), "task does not fit.*'pt', 'box' or 'ref'"),
    (put(PT, "coordinate_space", "pixels"), "coordinate_space does not fit.*allowed: 'grid1000'"),
    (put(PT, "absence_score", 1.5), "absence_score does not fit.*allowed: less than or equal to 1"),
    (put(PT, "absence_score", "1"), "absence_score does not fit.*allowed: a number"),
    (put(PT, "absence_score", True), "absence_score does not fit.*allowed: a number"),
    (
        put(PT, "absence_score", float("nan")),
        "absence_score does not fit.*allowed: less than or equal to 1",
    ),
    (put(PT, "objects", ...), "objects is missing"),
    (put(PT, "objects", []), "objects does not fit.*allowed: (a list|at least 1 item)"),
    (put(PT, "objects", {"0": 1}), "objects does not fit.*allowed: (a list|at least 1 item)"),
    (put(PT, "objects", [1] * 101), "got 101; allowed: up to 100 objects"),
    (put(PT, "objects.0", None), "'objects.0.': .*allowed: an object"),
    (put(PT, "objects.0.id", ...), "id is missing"),
    (put(PT, "objects.0.id", "1"), "id does not fit.*allowed: an integer"),
    (put(PT, "objects.0.id", True), "id does not fit.*allowed: an integer"),
    (put(PT, "objects.0.id", 10**5000), "id does not fit.*allowed: an integer"),
    (put(PT, "objects.0.id", float("inf")), "id does not fit.*allowed: an integer"),
    (put(PT, "objects.1.id", 1), "object id repeats"),
    (put(PT, "objects.1.id", 1.0), "object id repeats"),
    (
        put(PT, "reference_frame", "0"),
        "reference_frame does not fit.*allowed: (an integer|greater than or equal to 0)",
    ),
    (
        put(PT, "objects.1.reference_frame", -1),
        "reference_frame does not fit.*allowed: (an integer|greater than or equal to 0)",
    ),
    (put(PT, "objects.0.reference_xy", [1, 1001]), "xy.* (does not fit|is missing)"),
    (put(PT, "objects.0.reference_xy", [1, None]), "xy.* (does not fit|is missing)"),
    (put(PT, "objects.0.reference_xy", "1,2"), "xy.* (does not fit|is missing)"),
    (put(BOX, "objects.0.reference_bbox", [5, 5, 5, 9]), "box is empty or turned round"),
    (put(PT, "objects.0.targets", []), "targets does not fit.*allowed: at least 1 item"),
    (put(PT, "objects.0.targets", ...), "targets is missing"),
    (put(PT, TARGET, 1), "targets.0. does not fit.*allowed: an object"),
    (put(PT, f"{TARGET}.frame", ...), "frame is missing"),
    (
        put(PT, f"{TARGET}.frame", -1),
        "frame does not fit.*allowed: greater than or equal to 0",
    ),
    (
        put(PT, f"{TARGET}.frame", 1.5),
        "frame does not fit.*allowed: an integer",
    ),
    (
        put(REF, f"{TARGET}.frame", 0),
        "frame does not fit.*allowed: frame numbers from 1",
    ),
    (put(PT, "objects.1.targets.1.frame", 1), "target frame repeats"),
    (put(PT, f"{TARGET}.visible", ...), "visible is missing"),
    (put(PT, f"{TARGET}.visible", 1), "visible does not fit.*allowed: true or false"),
    (put(PT, f"{TARGET}.mask", ...), "visible target has no mask"),
    (put(REF, f"{TARGET}.mask", None), "visible target has no mask"),
    (put(PT, f"{TARGET}.mask.counts", [1, 2]), "do not add up"),
    (put(PT, f"{TARGET}.mask.counts", [4]), "empty mask"),
    (put(PT, f"{TARGET}.mask.size", ...), "no .h, w."),
    (put(PT, f"{TARGET}.xy", [1]), "xy.* (does not fit|is missing)"),
    (put(BOX, f"{TARGET}.bbox", ...), "visible target has no bbox"),
    (put(BOX, f"{TARGET}.bbox", [0, 0, 10]), "bbox.3. is missing"),
    (put(BOX, f"{TARGET}.bbox", [10, 0, 10, 5]), "box is empty or turned round"),
    ([], "row does not fit.*allowed: an object"),
    (None, "row does not fit.*allowed: an object"),
]


@pytest.mark.parametrize(("row", "problem"), BAD, ids=range(len(BAD)))
def test_bad_row_is_refused_at_load_and_no_measurement_at_verify(row: Any, problem: str) -> None:
    with pytest.raises(RowError, match=problem):
        TrackRow.from_row(row, Where(file="rows.jsonl", line=3))
    result = score_tracks("<answer>{}</answer>", row)
    assert (result.reward, result.mask_sample, result.reason) == (0, True, "bad_row")
    assert result.failure_kind == "nemo_gym_video:bad_row"
    json.dumps(result.to_json())


def test_all_problems_are_listed_with_their_places() -> None:
    row = put(put(put(PT, f"{TARGET}.mask.counts", [9]), "objects.1.targets.0.visible", 0), "absence_score", 2)
    problems = [str(problem) for problem in check_track_row(row, Where(file="rows.jsonl", line=3))[1]]
    assert len(problems) == 3
    assert all(problem.startswith("rows.jsonl:3, field ") for problem in problems)
    assert "objects[0].targets[0].mask" in problems[1]
    assert "objects[1].targets[0].visible" in problems[2]


def _with_images(row: dict[str, Any], images: int, kind: str = "input_image") -> dict[str, Any]:
    key = "image_url" if kind == "input_image" else "video_url"
    content = [{"type": kind, key: f"frames/{index}.jpg"} for index in range(images)]
    return row | {"responses_create_params": {"input": [{"role": "user", "content": content}]}}


@pytest.mark.parametrize(
    ("row", "good"),
    [
        (_with_images(PT, 5), True),
        (_with_images(PT, 4), False),  # object 2 is shown on frame 4
        (_with_images(put(PT, f"{TARGET}.frame", 5), 5), False),
        (_with_images(REF, 1), True),
        (_with_images(put(REF, f"{TARGET}.frame", 2), 1), False),
        (_with_images(PT, 0), True),
        (_with_images(PT, 1, "input_video"), True),
        (PT | {"responses_create_params": {"input": "text"}}, True),
        (PT | {"responses_create_params": None}, True),
        (_with_images(PT, 1, "input_image") | {"task": "box"}, False),
    ],
)
def test_every_frame_has_an_image(row: dict[str, Any], good: bool) -> None:
    assert (check_track_row(row)[0] is not None) == good


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["pt", "box", "ref"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "frame", "visible", "mask", "size", "counts", "targets", "bbox"]), inner
        )
    ),
    max_leaves=12,
)
PLACES = st.sampled_from(
    [
        *("task", "coordinate_space", "reference_frame", "absence_score", "responses_create_params"),
        *("objects", "objects.0", "objects.0.id", "objects.0.targets", TARGET),
        *("objects.0.reference_xy", "objects.0.reference_bbox", f"{TARGET}.frame", f"{TARGET}.visible"),
        *(f"{TARGET}.bbox", f"{TARGET}.mask", f"{TARGET}.mask.size", f"{TARGET}.mask.counts"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(row=st.sampled_from([PT, BOX, REF]), path=PLACES, value=JSON)
def test_no_row_raises(row: dict[str, Any], path: str, value: Any) -> None:
    row = row | {"responses_create_params": {"input": []}, "absence_score": 1}
    spoiled = put(put(row, f"{TARGET}.bbox", [0, 0, 1, 1]), f"{TARGET}.mask", RUNS)
    result = score_tracks('<answer>{"tracks": []}</answer>', put(spoiled, path, value))
    assert result.mask_sample == (result.reason == "bad_row")
    json.dumps(result.to_json())
