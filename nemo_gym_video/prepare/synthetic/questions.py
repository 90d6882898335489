# SPDX-License-Identifier: Apache-2.0
"""The wording of every question the synthetic data asks, in one place: written here, read back here.

``Question`` is what the renderer knows; ``read_question`` recovers kind, length and subject from the text alone,
so that a policy that has only the text (the embedded baseline) and the tests need no second copy of the wording.
Times are seconds from the first frame. ``read_*`` functions return None for any other text and scan it linearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from nemo_gym_video.prepare.mcqa_prompt import LETTERS

QuestionKind = Literal[
    "hardest_cut", "brightest_second", "darkest_second", "last_colour", "enter_time", "leave_time"
]

# Saturated and at least 40 degrees of hue apart, so that colour alone names a shape; RGB, 0..255.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 38, 38),
    "yellow": (232, 214, 30),
    "green": (36, 186, 60),
    "cyan": (30, 206, 222),
    "blue": (44, 76, 232),
    "magenta": (222, 50, 214),
}
SHAPES = ("circle", "square", "triangle", "star", "cross")

# The first clause of every question: tagged frames carry no clock, so the text says how long the video is.
_LEAD = "In this video of "
_BODIES: dict[QuestionKind, str] = {
    "hardest_cut": "at which of these times is the hardest cut?",
    "brightest_second": "which of these seconds is the brightest on average?",
    "darkest_second": "which of these seconds is the darkest on average?",
    "last_colour": "which colour has the shape that enters last?",
    "enter_time": "when does the {subject} first appear?",
    "leave_time": "when does the {subject} leave the picture for good?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its options in presentation order; ``answer`` indexes ``options``."""

    kind: QuestionKind
    text: str
    options: tuple[str, ...]
    answer: int

    @property
    def letter(self) -> str:
        """The answer as a letter."""
        return LETTERS[self.answer]


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """What a question's text says: its kind, the video's length in seconds, its (colour, shape) subject."""

    kind: QuestionKind
    duration_s: float
    subject: tuple[str, str] | None


def expression(colour: str, shape: str) -> str:
    """The words that refer to a shape: ``the red circle``."""
    return f"the {colour} {shape}"


def read_expression(text: str) -> tuple[str, str] | None:
    """Colour and shape of the first ``COLOUR SHAPE`` pair in ``text``."""
    words = "".join(letter if letter.isalpha() else " " for letter in text.lower()).split()
    for colour, shape in pairwise(words):
        if colour in COLOURS and shape in SHAPES:
            return colour, shape
    return None


def question_text(kind: QuestionKind, *, duration_s: float, subject: tuple[str, str] | None = None) -> str:
    """Word a question: ``In this video of 5.0 s, when does the red circle first appear?``"""
    words = "" if subject is None else " ".join(subject)
    return f"{_LEAD}{duration_s:.1f} s, {_BODIES[kind].format(subject=words)}"


def read_question(text: str) -> ReadQuestion | None:
    """Read ``question_text`` back from a prompt that contains it, wherever it stands."""
    start = text.rfind(_LEAD)
    end = text.find("?", start)
    if start < 0 or end < 0:
        return None
    length, _, body = text[start + len(_LEAD) : end + 1].partition(" s, ")
    try:
        duration_s = float(length)
    except ValueError:
        return None
    for kind, pattern in _BODIES.items():
        head, _, tail = pattern.partition("{subject}")
        if body == pattern:
            return ReadQuestion(kind, duration_s, None)
        if tail and body.startswith(head) and body.endswith(tail):
            return ReadQuestion(kind, duration_s, read_expression(body))
    return None


def time_option(seconds: float) -> str:
    """An instant as an option: ``2.5 s``."""
    return f"{seconds:.1f} s"


def second_option(second: int) -> str:
    """A whole second as an option: ``from 2 s to 3 s``."""
    return f"from {second} s to {second + 1} s"


def read_time(option: str) -> float | None:
    """The instant of ``time_option`` or the start of ``second_option``, in seconds."""
    words = option.strip().removeprefix("from ").split()
    if len(words) < 2 or words[1] != "s":
        return None
    try:
        return float(words[0])
    except ValueError:
        return None
