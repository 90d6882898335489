# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.tracking.prompts import (
    AskedObject,
    frame_label,
    read_frame_label,
    read_track_prompt,
    track_prompt,
)
from nemo_gym_video.tasks.tracking.schema import Task, answer_schema

grid = st.integers(0, 1000)
frames = st.integers(0, 120)


@settings(max_examples=60)
@given(places=st.lists(st.tuples(grid, grid, frames), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_points_read_back_whatever_the_wording(places: list[tuple[int, int, int]], seed: int) -> None:
    targets = tuple(AskedObject(id=n, xy=(x, y), frame=f) for n, (x, y, f) in enumerate(places, start=1))
    text = track_prompt("pt", targets, first=0, last=130, fps=6.0, rng=random.Random(seed))
    assert read_track_prompt(text) == ("pt", targets)


@settings(max_examples=60)
@given(boxes=st.lists(st.tuples(grid, grid, grid, grid, frames), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_boxes_read_back(boxes: list[tuple[int, int, int, int, int]], seed: int) -> None:
    targets = tuple(
        AskedObject(id=n, bbox=(a, b, c, d), frame=f) for n, (a, b, c, d, f) in enumerate(boxes, start=1)
    )
    text = track_prompt("box", targets, first=0, last=130, fps=6.0, rng=random.Random(seed))
    assert read_track_prompt(text) == ("box", targets)


@settings(max_examples=60)
@given(words=st.lists(st.from_regex(r"[A-Za-z\"'#% é]{1,30}", fullmatch=True), min_size=1, max_size=4))
def test_expressions_read_back_with_white_space_folded(words: list[str]) -> None:
    targets = [AskedObject(id=n, expression=text) for n, text in enumerate(words, start=1)]
    text = track_prompt("ref", targets, first=1, last=9, fps=6.0, rng=random.Random(0))
    found = read_track_prompt(text)
    folded = [" ".join(word.split()) for word in words]
    if all(folded):
        assert found is not None
        assert [target.expression for target in found[1]] == folded


@pytest.mark.parametrize("task", ["pt", "box", "ref"])
def test_every_wording_states_grid_absence_schema_and_form(task: Task) -> None:
    target = AskedObject(id=1, xy=(1, 2), bbox=(1, 2, 3, 4), expression="the red circle")
    texts = {track_prompt(task, [target], first=0, last=9, fps=6.0, rng=random.Random(seed)) for seed in range(60)}
    assert len(texts) > 20
    schema = json.dumps(answer_schema(task), separators=(",", ":"))
    for text in texts:
        assert "0 to 1000" in text
        assert "inclu" in text  # both ends are said to belong to the grid
        assert '"visible": false' in text
        assert schema in text
        assert "<answer>" in text.splitlines()[-1]


def test_a_late_reference_is_said_with_its_frame() -> None:
    targets = [
        AskedObject(id=1, xy=(445, 624)),
        AskedObject(id=2, xy=(34, 585), frame=4),
        AskedObject(id=3, xy=(32, 691), frame=4),
    ]
    text = track_prompt("pt", targets, first=0, last=9, fps=6.0, rng=random.Random(1))
    assert "point 1 at (445, 624), point 2 at (34, 585) in frame 4, and point 3 at (32, 691) in frame 4." in text


def test_one_seed_gives_one_wording() -> None:
    targets = [AskedObject(id=1, xy=(1, 2))]
    texts = {track_prompt("pt", targets, first=0, last=9, fps=6.0, rng=random.Random(3)) for _ in range(3)}
    assert len(texts) == 1


def test_other_text_asks_for_no_tracking() -> None:
    assert read_track_prompt("point 1 at (2, 3)") is None
    assert read_track_prompt("Put it in <answer> tags.") is None


def test_frame_labels() -> None:
    assert read_frame_label(frame_label(12)) == 12
    assert read_frame_label("Frame twelve:") is None
    assert read_frame_label("See Frame 3: here") is None
