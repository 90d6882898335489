# SPDX-License-Identifier: Apache-2.0
"""Which cells the tracking policy answers, and in which form; how well is in test_demo.py."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nemo_gym_video.baseline import tracks
from nemo_gym_video.baseline.seen import SeenMedia, SeenMessage
from nemo_gym_video.tasks.tracking.prompts import AskedObject, frame_label, track_prompt
from nemo_gym_video.tasks.tracking.schema import Task, answer_validator

Pixels = NDArray[np.uint8]
SIZE = (200, 100)
COLOURS = {"red": (222, 38, 38), "blue": (44, 76, 232)}


def scene(ground: Pixels, step: int, *, hide: str = "") -> Pixels:
    """A red square that goes right and a blue one that goes up, 24 pixels each."""
    frame = ground.copy()
    places = {"red": (20 + 6 * step, 20), "blue": (150, 70 - 4 * step)}
    for name, (x, y) in places.items():
        if name != hide:
            frame[y : y + 24, x : x + 24] = COLOURS[name]
    return frame


@pytest.fixture
def ground(textured: Callable[..., Pixels]) -> Pixels:
    return textured(3, SIZE)


def stills(frames: Sequence[Pixels], *, first: int = 0) -> list[str | SeenMedia]:
    parts: list[str | SeenMedia] = []
    for number, frame in enumerate(frames, start=first):
        parts += [frame_label(number), SeenMedia(kind="image", frames=(frame,), size=SIZE)]
    return parts


def prompt(task: Task, *targets: AskedObject, last: int) -> str:
    first = 1 if task == "ref" else 0
    return track_prompt(task, targets, first=first, last=last, fps=6, rng=random.Random(0))


def answer(*messages: SeenMessage, task: Task, rng: random.Random | None = None) -> list[dict[str, Any]]:
    assert tracks.matches(messages)
    text = tracks.respond(messages, rng=rng, temperature=1.0)
    assert text.startswith("<answer>")
    assert text.endswith("</answer>")
    body = json.loads(text[8:-9])
    answer_validator(task).validate(body)
    entries: list[dict[str, Any]] = body["tracks"]
    return entries


RED = AskedObject(id=1, xy=(160, 320))
LATE = AskedObject(id=2, xy=(810, 700), frame=2)


def test_points_are_asked_from_the_frame_after_their_own(ground: Pixels) -> None:
    frames = stills([scene(ground, step) for step in range(5)])
    entries = answer(SeenMessage("user", (*frames, prompt("pt", RED, LATE, last=4))), task="pt")
    assert sorted((entry["point"], entry["frame"]) for entry in entries) == [
        (1, 1), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4),
    ]  # fmt: skip
    for entry in entries:
        if entry["point"] == 1:
            assert entry["xy"] == pytest.approx([160 + 30 * entry["frame"], 320], abs=60)


def test_boxes_are_upright_and_near_the_object(ground: Pixels) -> None:
    frames = stills([scene(ground, step) for step in range(4)])
    target = AskedObject(id=7, bbox=(100, 200, 220, 440))
    entries = answer(SeenMessage("user", (prompt("box", target, last=3), *frames)), task="box")
    assert [entry["frame"] for entry in entries] == [1, 2, 3]
    for entry in entries:
        step = entry["frame"]
        assert entry["bbox"] == pytest.approx([100 + 30 * step, 200, 220 + 30 * step, 440], abs=40)


def test_objects_are_found_by_their_words_in_every_frame(ground: Pixels) -> None:
    frames = stills([scene(ground, step, hide="blue" if step == 2 else "") for step in range(4)], first=1)
    targets = (AskedObject(id=1, expression="the blue square"), AskedObject(id=2, expression="the red square"))
    entries = answer(SeenMessage("user", (*frames, prompt("ref", *targets, last=4))), task="ref")
    absent = [(entry["id"], entry["frame"]) for entry in entries if not entry["visible"]]
    assert absent == [(1, 3)]
    assert sorted((entry["id"], entry["frame"]) for entry in entries) == [
        (i, f) for i in (1, 2) for f in (1, 2, 3, 4)
    ]
    for entry in entries:
        if entry["id"] == 2:
            step = entry["frame"] - 1
            assert 100 + 30 * step <= entry["xy"][0] <= 220 + 30 * step


def test_words_that_name_no_colour_are_answered_absent(ground: Pixels) -> None:
    frames = stills([scene(ground, step) for step in range(2)], first=1)
    target = AskedObject(id=1, expression="the dog on the left")
    entries = answer(SeenMessage("user", (*frames, prompt("ref", target, last=2))), task="ref")
    assert [entry["visible"] for entry in entries] == [False, False]


def test_chunks_are_tracked_across_turns_and_answered_once(ground: Pixels) -> None:
    frames = stills([scene(ground, step) for step in range(7)])
    said = prompt("pt", RED, AskedObject(id=2, xy=(810, 590), frame=4), last=6)
    talk: list[SeenMessage] = [SeenMessage("user", (said,))]
    found: list[tuple[int, int]] = []
    places: dict[int, list[float]] = {}
    for start, stop in ((0, 3), (3, 5), (5, 7)):
        again = "New: point 2 at (810, 590) in frame 4. " if start == 3 else ""
        talk.append(SeenMessage("user", (*frames[2 * start : 2 * stop], f"{again}Now answer.")))
        entries = answer(*talk, task="pt")
        found += [(entry["point"], entry["frame"]) for entry in entries]
        places |= {entry["frame"]: entry["xy"] for entry in entries if entry["point"] == 1}
        talk.append(SeenMessage("assistant", (f"<answer>{json.dumps({'tracks': entries})}</answer>",)))
    assert sorted(found) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 5), (2, 6)]
    assert places[6] == pytest.approx([160 + 180, 320], abs=60)


def test_a_remark_without_frames_asks_for_the_last_chunk_again(ground: Pixels) -> None:
    frames = stills([scene(ground, step) for step in range(3)])
    first = SeenMessage("user", (*frames, prompt("pt", RED, last=2)))
    remark = SeenMessage("user", ("That was not valid JSON.",))
    entries = answer(first, SeenMessage("assistant", ("oops",)), remark, task="pt")
    assert [entry["frame"] for entry in entries] == [1, 2]


def test_frames_without_labels_are_counted(ground: Pixels) -> None:
    video = SeenMedia(kind="video", frames=tuple(scene(ground, step) for step in range(3)), size=SIZE)
    entries = answer(SeenMessage("user", (video, prompt("pt", RED, last=2))), task="pt")
    assert [entry["frame"] for entry in entries] == [1, 2]


def test_jitter_stays_on_the_grid(ground: Pixels) -> None:
    frames = [scene(ground, 0)] * 8
    targets = (AskedObject(id=1, bbox=(0, 0, 1000, 1000)), AskedObject(id=2, bbox=(990, 990, 1000, 1000)))
    message = SeenMessage("user", (*stills(frames), prompt("box", *targets, last=7)))
    for seed in range(5):
        answer(message, task="box", rng=random.Random(seed))


def test_without_frames_the_answer_is_empty() -> None:
    assert answer(SeenMessage("user", (prompt("pt", RED, last=2),)), task="pt") == []


def test_other_prompts_are_not_for_this_policy() -> None:
    assert not tracks.matches([SeenMessage("user", ("Which letter? \\boxed{}",))])
    talk = [SeenMessage("user", ("Hi",)), SeenMessage("assistant", ("<answer>point 1 at (1, 2)</answer>",))]
    assert not tracks.matches(talk)
