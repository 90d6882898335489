# SPDX-License-Identifier: Apache-2.0
"""The multiple-choice policy: answers the question kinds it can read by looking at the frames.

Anything else gets the first letter, and the answer says that it is a guess.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.baseline.seen import SeenMessage, text_of
from nemo_gym_video.baseline.timeline import TimedFrame, levels, presence, read_timeline, steps
from nemo_gym_video.prepare.mcqa_prompt import read_options
from nemo_gym_video.prepare.synthetic.questions import COLOURS, ReadQuestion, read_question, read_time

_SLIP = 0.1
"""Chance of answering another letter at temperature 1."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen option's index and the span of time (seconds) in which the evidence lies."""

    option: int
    span: tuple[float, float]


def matches(messages: Sequence[SeenMessage]) -> bool:
    """Whether the conversation asks for a boxed letter."""
    return "\\boxed" in text_of(messages)


def respond(messages: Sequence[SeenMessage], *, rng: random.Random | None, temperature: float) -> str:
    """One sentence and the boxed letter."""
    text = text_of(messages)
    question, options = read_question(text), read_options(text)
    choice = choose(messages, question, [option for _, option in options]) if question else None
    if choice is None:
        return "I cannot read this kind of question, so this is a guess. \\boxed{A}"
    letters = [letter for letter, _ in options]
    letter = letters[choice.option]
    if rng is not None and rng.random() < _SLIP * temperature:
        letter = rng.choice(letters)
    return f"Judging from {choice.span[0]:.2f} s to {choice.span[1]:.2f} s. \\boxed{{{letter}}}"


def choose(messages: Sequence[SeenMessage], question: ReadQuestion, options: Sequence[str]) -> Choice | None:
    """The option that the frames speak for; None without frames or with options of another form."""
    if not 0 < question.duration_s < 1e6:
        return None
    frames = read_timeline(messages, duration_s=question.duration_s)
    if len(frames) < 2 or len(options) < 2:
        return None
    if question.kind == "last_colour":
        return _last_colour(frames, options)
    times = [read_time(option) for option in options]
    known = [time for time in times if time is not None]
    if len(known) != len(options):
        return None
    if question.kind == "hardest_cut":
        return _hardest_cut(frames, known)
    if question.kind in ("brightest_second", "darkest_second"):
        return _extreme_second(frames, known, sign=1 if question.kind == "brightest_second" else -1)
    if question.subject is None:
        return None
    seen = presence(frames, *question.subject)
    span = _enters(frames, seen) if question.kind == "enter_time" else _leaves(frames, seen)
    middle = (span[0] + span[1]) / 2
    return Choice(min(range(len(known)), key=lambda index: abs(known[index] - middle)), span)


def _hardest_cut(frames: Sequence[TimedFrame], times: Sequence[float]) -> Choice:
    """The option whose step between two frames changes most. Steps of unlike length do not compare by change
    alone, but a cut exceeds what movement adds to a longer one."""
    changes = steps(frames)
    around = [
        max(
            (step for step in changes if step[0] - 0.03 <= time <= step[1] + 0.03),
            key=_change,
            default=(0, 0, -1.0),
        )
        for time in times
    ]
    best = max(range(len(times)), key=lambda index: around[index][2])
    return Choice(best, around[best][:2])


def _extreme_second(frames: Sequence[TimedFrame], starts: Sequence[float], *, sign: int) -> Choice:
    light = levels(frames)

    def mean(start: float) -> float:
        inside = [level for frame, level in zip(frames, light, strict=True) if start <= frame.time < start + 1]
        nearest = min(range(len(frames)), key=lambda index: abs(frames[index].time - start - 0.5))
        return sum(inside) / len(inside) if inside else light[nearest]

    best = max(range(len(starts)), key=lambda index: sign * mean(starts[index]))
    return Choice(best, (starts[best], starts[best] + 1))


def _last_colour(frames: Sequence[TimedFrame], options: Sequence[str]) -> Choice | None:
    spans = {}
    for index, option in enumerate(options):
        colour = option.strip().lower()
        seen = presence(frames, colour, None) if colour in COLOURS else []
        if any(seen):
            spans[index] = _enters(frames, seen)
    if not spans:
        return None
    best = max(spans, key=lambda index: spans[index])
    return Choice(best, spans[best])


def _enters(frames: Sequence[TimedFrame], seen: Sequence[bool]) -> tuple[float, float]:
    """Between which two frames something comes into view for the first time."""
    first = seen.index(True) if any(seen) else 0
    return frames[max(0, first - 1)].time, frames[first].time


def _leaves(frames: Sequence[TimedFrame], seen: Sequence[bool]) -> tuple[float, float]:
    """Between which two frames something is seen for the last time and no more."""
    last = len(seen) - 1 - list(reversed(seen)).index(True) if any(seen) else len(seen) - 1
    return frames[last].time, frames[min(last + 1, len(frames) - 1)].time


def _change(step: tuple[float, float, float]) -> float:
    return step[2]
