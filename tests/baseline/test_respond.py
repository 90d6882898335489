# SPDX-License-Identifier: Apache-2.0
"""Whatever a prompt says and shows, there is an answer and never a traceback."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.baseline.respond import respond
from nemo_gym_video.baseline.seen import SeenMedia, SeenMessage, like_first

FRAGMENTS = [
    'Answer <answer>{"tracks": []}</answer>',
    "point 1 at (500, 500)",
    "point 2 at (9999, 0) in frame 3",
    "box 1 at (900, 900, 100, 100)",
    "box 2 at (0, 0, 0, 0)",
    "\n1. the red circle\n2. a dog\n",
    "Frame 2:",
    "Frame 999999:",
    "In this video of 5.0 s, at which of these times is the hardest cut?",
    "In this video of nan s, at which of these times is the hardest cut?",
    "In this video of 0.0 s, which of these seconds is the brightest on average?",
    "In this video of 4.5 s, when does the red circle first appear?",
    "In this video of 4.5 s, when does the  leave the picture for good?",
    "In this video of 4.5 s, which colour has the shape that enters last?",
    "\nA. 1.0 s\nB. nan s\nC. from 2 s to 3 s\n",
    "\nA. red\nB. no colour\n",
    "Put it in \\boxed{...}.",
    '<request>{"clip": {}}</request>',
    "at 1.00, 2.00 s. at most 0 frames",
    "at 9.00 s. Answer now",
    "\u0000\ud800",
]


@st.composite
def media(draw: st.DrawFn) -> SeenMedia:
    count = draw(st.integers(1, 4))
    width, height = draw(st.sampled_from([(1, 1), (3, 40), (40, 3), (32, 24), (64, 48)]))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    frames = tuple(rng.integers(0, 256, size=(height, width, 3), dtype=np.uint8) for _ in range(count))
    return SeenMedia(
        kind="image" if count == 1 else "video",
        frames=frames,
        size=(width, height),
        indices=tuple(range(count)),
        timestamps=tuple(float(number) for number in range(count)),
    )


PARTS = st.lists(st.one_of(st.sampled_from(FRAGMENTS), media()), max_size=7)
TALK = st.lists(
    st.builds(SeenMessage, st.sampled_from(["user", "user", "assistant"]), PARTS.map(tuple)), max_size=4
)


@settings(max_examples=300, deadline=None)
@given(TALK, st.sampled_from([0.0, 1.0]))
def test_there_is_always_an_answer(talk: list[SeenMessage], temperature: float) -> None:
    rng = random.Random(0) if temperature else None
    text = respond([*talk, SeenMessage("user", ())], rng=rng, temperature=temperature)
    assert text.isascii()
    for tag in ("answer", "request"):
        if text.startswith(f"<{tag}>"):
            json.loads(text.removeprefix(f"<{tag}>").removesuffix(f"</{tag}>"), parse_constant=pytest.fail)


def test_a_thousand_targets_do_not_take_all_day() -> None:
    said = " ".join(f"point {number} at (500, 500)" for number in range(1000))
    frame = np.zeros((24, 32, 3), np.uint8)
    image: Any = SeenMedia(kind="image", frames=(frame,), size=(32, 24))
    text = respond([SeenMessage("user", (f"<answer> {said}", image, image))], rng=None, temperature=0.0)
    assert text.count('"point"') == 64


def test_frames_are_brought_to_one_size() -> None:
    frames = [np.zeros((4, 6, 3), np.uint8), np.full((8, 12, 3), 9, np.uint8)]
    alike = like_first(frames)
    assert [frame.shape for frame in alike] == [(4, 6, 3)] * 2
    assert alike[0] is frames[0]
    assert (alike[1] == 9).all()
