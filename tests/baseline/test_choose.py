# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nemo_gym_video.baseline import explore
from nemo_gym_video.baseline.refer import locate
from nemo_gym_video.baseline.respond import respond
from nemo_gym_video.baseline.seen import SeenMedia, SeenMessage
from nemo_gym_video.baseline.timeline import read_timeline
from nemo_gym_video.prepare.mcqa_prompt import mcqa_prompt
from nemo_gym_video.prepare.synthetic.multi_turn_rows import explorer_row
from nemo_gym_video.prepare.synthetic.questions import (
    COLOURS,
    SHAPES,
    QuestionKind,
    question_text,
    second_option,
    time_option,
)
from nemo_gym_video.prepare.synthetic.scene import outline
from nemo_gym_video.tasks.clip_explorer.requests import ClipRequest, read_text

Pixels = NDArray[np.uint8]
SIZE = (160, 96)
FPS = 4.0
TIMES = [time_option(time) for time in (0.9, 2.1, 3.3, 4.4)]


def draw(frame: Pixels, shape: str, colour: str, centre: tuple[float, float], *, turn: float = 0.0) -> Pixels:
    rows, columns = np.mgrid[: frame.shape[0], : frame.shape[1]]
    x, y = (columns + 0.5 - centre[0]) / 18, (rows + 0.5 - centre[1]) / 18
    u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    painted = frame.copy()
    painted[outline(shape, u, v)] = COLOURS[colour]
    return painted


def video(frames: Sequence[Pixels], *, fps: float = FPS, clock: bool = True) -> SeenMedia:
    step = 1 / fps if clock else 1.0
    return SeenMedia(
        kind="video",
        frames=tuple(frames),
        size=SIZE,
        indices=tuple(range(len(frames))),
        timestamps=tuple(number * step for number in range(len(frames))),
        fps=fps if clock else 1.0,
    )


def said(question: str, options: Sequence[str], media: SeenMedia, **kwargs: Any) -> str:
    message = SeenMessage("user", (media, mcqa_prompt(question, options)))
    return respond([message], rng=kwargs.get("rng"), temperature=kwargs.get("temperature", 0.0))


def letter(text: str) -> str:
    return text[text.rindex("\\boxed{") + 7 : -1]


@pytest.fixture
def ground(textured: Callable[..., Pixels]) -> Pixels:
    return textured(5, SIZE)


def asked(kind: QuestionKind, subject: tuple[str, str] | None = None) -> str:
    return question_text(kind, duration_s=5.0, subject=subject)


@pytest.mark.parametrize("clock", [True, False])
@pytest.mark.parametrize(("cut", "right"), [(4, "A"), (9, "B"), (14, "C"), (18, "D")])
def test_the_hardest_cut(textured: Callable[..., Pixels], cut: int, right: str, clock: bool) -> None:
    frames = [textured(1, SIZE)] * cut + [textured(2, SIZE)] * (20 - cut)
    options = [time_option(number / FPS) for number in (4, 9, 14, 18)]
    assert letter(said(asked("hardest_cut"), options, video(frames, clock=clock))) == right


@pytest.mark.parametrize(("kind", "right"), [("brightest_second", "D"), ("darkest_second", "B")])
def test_light(ground: Pixels, kind: QuestionKind, right: str) -> None:
    gains = [1.0, 0.9, 0.5, 1.05, 1.2]
    frames = [np.asarray(ground * gains[number // 4], np.uint8) for number in range(20)]
    options = [second_option(second) for second in (0, 2, 3, 4)]
    assert letter(said(asked(kind), options, video(frames))) == right


@pytest.mark.parametrize(("first", "right"), [(4, "A"), (9, "B"), (14, "C"), (18, "D")])
def test_entering_and_leaving(ground: Pixels, first: int, right: str) -> None:
    there = draw(draw(ground, "star", "green", (40, 40)), "circle", "red", (110, 50))
    gone = draw(ground, "star", "green", (40, 40))
    frames = [gone] * first + [there] * (20 - first)
    options = [time_option(number / FPS - 0.1) for number in (4, 9, 14, 18)]
    assert letter(said(asked("enter_time", ("red", "circle")), options, video(frames))) == right
    assert letter(said(asked("leave_time", ("red", "circle")), options[::-1], video(frames[::-1]))) in "ABCD"
    backwards = [time_option(5.0 - number / FPS) for number in (4, 9, 14, 18)]
    assert letter(said(asked("leave_time", ("red", "circle")), backwards, video(frames[::-1]))) == right


def test_the_last_to_enter(ground: Pixels) -> None:
    frames = [ground] * 20
    for number, (colour, x) in enumerate({"blue": 30, "red": 80, "yellow": 130}.items()):
        for place in range(5 * number, 20):
            frames[place] = draw(frames[place], "square", colour, (x, 48))
    assert letter(said(asked("last_colour"), ["red", "yellow", "blue", "cyan"], video(frames))) == "B"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("shape", SHAPES)
def test_colour_and_shape_words_name_one_of_two(ground: Pixels, colour: str, shape: str) -> None:
    other = "circle" if shape in ("star", "cross") else "star"
    frames = [
        draw(draw(ground, other, colour, (40, 48)), shape, colour, (115, 48), turn=0.2 * step) for step in range(3)
    ]
    for place in locate(frames, colour, shape):
        assert place is not None
        assert np.hypot(place.xy[0] - 115, place.xy[1] - 48) < 16


def test_a_colour_that_is_not_there_is_not_found(ground: Pixels) -> None:
    assert locate([draw(ground, "circle", "red", (60, 48))] * 3, "cyan", "circle") == [None] * 3


@pytest.mark.parametrize(
    "question",
    ["What is the man holding?", "In this video of 5.0 s, how many cats are there?", "In this video of"],
)
def test_other_questions_get_the_first_letter_and_say_so(ground: Pixels, question: str) -> None:
    answer = said(question, ["a", "b"], video([ground] * 3))
    assert letter(answer) == "A"
    assert "guess" in answer


@pytest.mark.parametrize("options", [[], ["1.0 s"], ["early", "late"]])
def test_options_of_another_form_are_a_guess(ground: Pixels, options: list[str]) -> None:
    assert "guess" in said(asked("hardest_cut"), options, video([ground] * 3))


def test_options_that_are_no_known_colour_are_a_guess(ground: Pixels) -> None:
    frames = [draw(ground, "circle", "red", (60, 48))] * 3
    assert "guess" in said(asked("last_colour"), ["mauve", "1.0 s"], video(frames))
    assert letter(said(asked("last_colour"), ["mauve", "Red"], video(frames))) == "B"


def test_no_frames_is_a_guess() -> None:
    message = SeenMessage("user", (mcqa_prompt(asked("hardest_cut"), TIMES),))
    assert "guess" in respond([message], rng=None, temperature=0.0)


def test_temperature_slips_now_and_then(textured: Callable[..., Pixels]) -> None:
    media = video([textured(1, SIZE)] * 4 + [textured(2, SIZE)] * 16)
    letters = Counter(
        letter(said(asked("hardest_cut"), TIMES, media, rng=random.Random(seed), temperature=1.0))
        for seed in range(60)
    )
    assert letters["A"] >= 45
    assert len(letters) > 1


def test_plain_talk_gets_a_plain_answer() -> None:
    assert "baseline" in respond([SeenMessage("user", ("Hello",))], rng=None, temperature=0.0)


def test_times_come_from_the_words_before_the_media(ground: Pixels) -> None:
    shown = SeenMessage(
        "user", ("Clip from 2.00 s to 3.00 s: 3 frames, at 2.00, 2.50, 3.00 s. Go on.", video([ground] * 3))
    )
    first = SeenMessage("user", ("Overview: 2 frames, at 0.00, 4.75 s. Go on.", video([ground] * 2)))
    times = [frame.time for frame in read_timeline([first, shown], duration_s=5.0)]
    assert times == [0.0, 2.0, 2.5, 3.0, 4.75]


def test_a_clip_that_was_sampled_again_counts_from_its_first_time(ground: Pixels) -> None:
    words = "Clip from 2.00 s to 3.00 s: 3 frames, at 2.00, 2.50, 3.00 s."
    message = SeenMessage("user", (words, video([ground] * 2)))
    assert [frame.time for frame in read_timeline([message], duration_s=5.0)] == [2.0, 2.25]


def test_frames_without_a_clock_are_spread_over_the_length(ground: Pixels) -> None:
    message = SeenMessage("user", (video([ground] * 10, clock=False),))
    times = [frame.time for frame in read_timeline([message], duration_s=5.0)]
    assert times == pytest.approx([number * 4.75 / 9 for number in range(10)])


def explorer_prompt(kind: QuestionKind) -> str:
    row = {
        "responses_create_params": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_video", "video_url": "a.mp4"},
                        {"type": "input_text", "text": mcqa_prompt(asked(kind), TIMES)},
                    ],
                }
            ]
        },
        "options": [{letter: text} for letter, text in zip("ABCD", TIMES, strict=True)],
        "expected_answer": "B",
    }
    text: str = explorer_row(row)["responses_create_params"]["input"][0]["content"][0]["text"]
    return text


def overview(
    frames: Sequence[Pixels], times: Sequence[float], tail: str = "You can ask 7 more times."
) -> SeenMessage:
    listed = ", ".join(f"{time:.2f}" for time in times)
    return SeenMessage("user", (f"Overview: {len(times)} frames, at {listed} s. {tail}", video(frames)))


def test_the_explorer_asks_for_the_clip_that_holds_the_cut(textured: Callable[..., Pixels]) -> None:
    before, after = textured(1, SIZE), textured(2, SIZE)
    talk = [
        SeenMessage("user", (explorer_prompt("hardest_cut"),)),
        overview([before, before, after, after], [0.0, 1.5, 3.0, 4.5]),
    ]
    assert explore.matches(talk)
    request = read_text(respond(talk, rng=None, temperature=0.0))
    assert isinstance(request, ClipRequest)
    assert request.start <= 1.5 < 3.0 <= request.end
    assert request.fps is not None
    assert (request.end - request.start) * request.fps <= 24
    shown = [1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0]
    clip = overview([before if time < 2.1 else after for time in shown], shown)
    answer = respond([*talk, SeenMessage("assistant", ("<request>…",)), clip], rng=None, temperature=0.0)
    assert letter(answer) == "B"


def test_the_explorer_stops_asking(ground: Pixels) -> None:
    talk = [SeenMessage("user", (explorer_prompt("hardest_cut"),)), overview([ground] * 4, [0.0, 1.5, 3.0, 4.5])]
    requests = 0
    while "<request>" in (text := respond(talk, rng=None, temperature=0.0)):
        requests += 1
        refusal = SeenMessage("user", ("The clip is too long: 40 frames, at most 10.",))
        talk += [SeenMessage("assistant", (text,)), refusal]
    assert requests == 3
    last = read_text(talk[-2].text)
    assert isinstance(last, ClipRequest)
    assert last.fps is not None
    assert (last.end - last.start) * last.fps <= 10


def test_the_explorer_answers_when_it_must(ground: Pixels) -> None:
    talk = [
        SeenMessage("user", (explorer_prompt("hardest_cut"),)),
        overview([ground] * 4, [0.0, 1.5, 3.0, 4.5], tail="Answer now within \\boxed{...}."),
    ]
    assert "\\boxed{" in respond(talk, rng=None, temperature=0.0)
