# SPDX-License-Identifier: Apache-2.0
r"""Scores the letter in the last ``\boxed{…}`` of an answer. The grammar is in ``docs/scoring.md``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.answers.visible import MAX_ANSWER_CHARS, Output, VisibleReason, visible_text
from nemo_gym_video.tasks.boxed.options import LETTERS, BoxedRow, GradingMode, boxed_row
from nemo_gym_video.tasks.task import BAD_ROW

MAX_BOX_CHARS = 4096
"""Longest box content that is read; a longer one is ``too_long``."""

BoxedReason = (
    VisibleReason
    | Literal[
        "correct", "wrong_letter", "no_box", "box_unclosed", "not_a_letter", "ambiguous",
        "letter_not_an_option", "bad_row",
    ]
)  # fmt: skip

_BOX = "\\boxed{"
_WRAPPERS = (
    "\\text{", "\\textbf{", "\\textit{", "\\mathrm{", "\\mathbf{", "\\mbox{", "\\boxed{", "{\\rm ", "{\\bf ", "{",
)  # fmt: skip
_MAX_WRAPPERS = 16
# The forms that nearly every answer has, read by one look-up; the grammar below reads them the same.
_COMMON = {
    form.replace("*", letter): letter
    for letter in LETTERS
    for form in ("*", "(*)", "*.", "*)", r"\text{*}", r"\textbf{*}", r"\mathrm{*}", r"\text{(*)}")
}
_LABEL = re.compile(r"([A-Z]) ?[.):-](.*)", re.DOTALL)
_ENCLOSED = re.compile(r"\(([A-Z])\)|\[([A-Z])\]")
_LONE_LETTER = re.compile(r"(?<!\w)[A-Z](?!\w)")

_SENTENCES: dict[str, str] = {
    "no_box": "The answer has no \\boxed{…}.",
    "box_unclosed": "The last \\boxed{ is never closed.",
    "not_a_letter": "The last box holds no option letter.",
    "ambiguous": "The last box names more than one option.",
    "letter_not_an_option": "The last box holds {letter}, which is no option of this row.",
    "thinking_unclosed": "The model was cut off while thinking.",
    "empty": "The answer is empty.",
    "too_long": "The answer, or its last box, is longer than allowed.",
    "correct": "The last box holds {letter}, the right option.",
    "wrong_letter": "The last box holds {letter}; {expected} is right.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxedResult:
    """The score of one boxed answer.

    ``letter`` is the option that was read, also when it is wrong or no option; ``mask_sample`` says that the row
    was no measurement, with ``failure_kind`` and ``failure_reason``.
    """

    reward: float
    reason: BoxedReason
    letter: str | None = None
    expected_answer: str | None = None
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None

    def explain(self) -> str:
        """One sentence for a person."""
        if self.failure_reason is not None:
            return f"Not a measurement: {self.failure_reason}."
        return _SENTENCES[self.reason].replace("{letter}", str(self.letter)).replace(
            "{expected}", str(self.expected_answer)
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values, with ``reward_components`` that sum to the reward."""
        return {
            "reward": self.reward,
            "reason": self.reason,
            "mask_sample": self.mask_sample,
            "failure_kind": self.failure_kind,
            "failure_reason": self.failure_reason,
            "extracted_answer": self.letter,
            "expected_answer": self.expected_answer,
            "reward_components": {"correct": self.reward},
            "explanation": self.explain(),
        }


def score_boxed(
    output: Output,
    *,
    options: object,
    expected_answer: object,
    grading_mode: object = None,
    max_chars: int = MAX_ANSWER_CHARS,
) -> BoxedResult:
    r"""Score ``output`` (text or output items) against a row's fields. Raises for no input.

    ``options`` and ``expected_answer`` as in ``boxed_row``; when they are malformed the result is
    ``mask_sample``.

    >>> from nemo_gym_video import score_boxed
    >>> options = [{"A": "red"}, {"B": "blue"}]
    >>> score_boxed("It is \\boxed{B}.", options=options, expected_answer="B").reward
    1.0
    >>> score_boxed("It is blue.", options=options, expected_answer="B").reason
    'no_box'
    """
    row = {"options": options, "expected_answer": expected_answer, "grading_mode": grading_mode}
    return score_boxed_row(output, row, max_chars=max_chars)


def score_boxed_row(
    output: Output,
    row: BoxedRow | object,
    *,
    grading_mode: GradingMode = "strict_single_letter_boxed",
    max_chars: int = MAX_ANSWER_CHARS,
) -> BoxedResult:
    """Score ``output`` against a row, read or not; the row's own ``grading_mode`` wins. Raises for no input."""
    if not isinstance(row, BoxedRow):
        try:
            row = boxed_row(row)
        except RowError as error:
            return BoxedResult(reward=0.0, reason="bad_row", mask_sample=True, failure_kind=BAD_ROW,
                               failure_reason=str(error))  # fmt: skip
    letter, reason = _read_answer(output, row, row.grading_mode or grading_mode, max_chars)
    return _result(letter, reason, row.expected_answer)


@cache
def _result(letter: str | None, reason: BoxedReason | None, expected: str) -> BoxedResult:
    # At most a few hundred values exist (letters are A to Z), and they are frozen: built once, shared after.
    if reason is None:
        reason = "correct" if letter == expected else "wrong_letter"
    return BoxedResult(reward=float(reason == "correct"), reason=reason, letter=letter, expected_answer=expected)


def last_box(text: str) -> tuple[str | None, BoxedReason | None]:
    r"""The content of the last ``\boxed{``, or the reason why there is none. Linear in the length of the text."""
    found = text.rfind(_BOX)
    if found < 0:
        return None, "no_box"
    start = position = found + len(_BOX)
    depth = 1
    while depth:
        end = text.find("}", position)
        if end < 0:
            return None, "box_unclosed"
        if end - start > MAX_BOX_CHARS:
            return None, "too_long"
        depth += text.count("{", position, end) - 1
        position = end + 1
    return text[start:end], None


def _read_answer(
    output: Output, row: BoxedRow, grading_mode: GradingMode, max_chars: int
) -> tuple[str | None, BoxedReason | None]:
    if type(output) is str and "<" not in output and 0 < len(output) <= max_chars:
        text = output  # the common case: nothing to take away
    else:
        text, unseen = visible_text(output, max_chars=max_chars)
        if unseen is not None:
            return None, unseen
    content, reason = last_box(text)
    if content is None:
        return None, "empty" if text.isspace() else reason
    options = row.options
    letter = _COMMON.get(content)
    if letter in options:
        return letter, None
    content = normalize_box(content)
    if not content:
        return None, "empty"
    letter, reason = _read_letter(content, options)
    if reason is not None and grading_mode == "lenient_boxed":
        folded = _fold(content)
        same = [key for key, option in options.items()
                if folded in (_fold(option), _fold(normalize_box(option)))]  # fmt: skip
        if len(same) == 1:
            return same[0], None
    return letter, reason


def _read_letter(content: str, options: Mapping[str, str]) -> tuple[str | None, BoxedReason | None]:
    """The option letter that ``content`` names by the grammar, or the reason why it names none."""
    letter = content if len(content) == 1 and "A" <= content <= "Z" else None
    if content[0] in "([":
        if enclosed := _ENCLOSED.fullmatch(content):
            letter = enclosed[1] or enclosed[2]
    elif label := _LABEL.fullmatch(content):
        letter = label[1] if _labels(label[1], label[2], options) else None
    if letter is not None:
        return letter, None if letter in options else "letter_not_an_option"
    lone = [name for name in _LONE_LETTER.findall(content) if name in options]
    if len(lone) > 1 or (len(content) > 1 and all(character in options for character in content)):
        return None, "ambiguous"
    return None, "not_a_letter"


def _labels(letter: str, text: str, options: Mapping[str, str]) -> bool:
    """Whether ``text`` after a letter leaves that letter alone: it names no other, or is the option's own text."""
    for other in _LONE_LETTER.findall(text):
        if other != letter and other in options:
            return _fold(text) == _fold(options.get(letter, ""))
    return True


def normalize_box(content: str) -> str:
    """NFKC, white space folded to single spaces, then wrappers and trailing punctuation taken off.

    Look-alike letters of other scripts stay what they are; full-width letters become the ASCII ones.
    """
    if len(content) > MAX_BOX_CHARS:
        return content
    if not content.isascii():
        content = unicodedata.normalize("NFKC", content)
        if len(content) > MAX_BOX_CHARS:
            return content
    content = _trim(" ".join(content.split()))
    for _ in range(_MAX_WRAPPERS):
        inner = _unwrap(content)
        if inner is None:
            return content
        content = _trim(inner)
    return content


def _trim(content: str) -> str:
    while content and (content[-1] in " ,." or content[0] == " "):
        before = content
        content = content.strip(" ").rstrip(".").removesuffix("\\,")
        if content == before:
            break
    return content


def _unwrap(content: str) -> str | None:
    """What stands inside the one wrapper around all of ``content``, or ``None``."""
    last = content[-1:]
    if last == "}":
        for wrapper in _WRAPPERS:
            if content.startswith(wrapper):
                inner = content[len(wrapper) : -1]
                return inner if _balanced(inner) else None
    elif last == "$":
        if len(content) > 2 and content[0] == "$" and "$" not in content[1:-1].strip("$"):
            return content[1:-1]
    elif last == "*" and len(content) > 4 and content.startswith("**") and content.endswith("**"):
        inner = content[2:-2]
        return None if "**" in inner else inner
    return None


def _balanced(text: str) -> bool:
    """Whether no brace of ``text`` closes one that stands before it."""
    if "}" not in text:
        return True
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return True


def _fold(text: str) -> str:
    if len(text) <= MAX_BOX_CHARS and not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())
