# SPDX-License-Identifier: Apache-2.0
"""The fields of a multiple-choice row, checked when the row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from nemo_gym_video.errors import RowError, Where

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed"]
GRADING_MODES: tuple[str, ...] = get_args(GradingMode)
LETTERS = "ABCDEFGHIJ"
_LETTERS = frozenset(LETTERS)


@dataclass(frozen=True, slots=True)
class BoxedRow:
    """Option texts by letter in their order, the right letter, and the row's own grading mode if it has one."""

    options: Mapping[str, str]
    expected_answer: str
    grading_mode: GradingMode | None = None


def boxed_row(row: object, *, where: Where | None = None) -> BoxedRow:
    """Read ``options``, ``expected_answer`` and ``grading_mode`` from the top level of a row.

    Raises:
        RowError: the first problem of the row.
    """
    found, problems = check_boxed_row(row, where=where)
    if found is None:
        raise problems[0]
    return found


def check_boxed_row(row: object, *, where: Where | None = None) -> tuple[BoxedRow | None, list[RowError]]:
    """The row, or ``None`` and everything that is wrong with it."""
    if type(row) is not dict and not isinstance(row, Mapping):
        return None, [RowError("row is no JSON object", got=type(row).__name__, where=where)]
    problems: list[RowError] = []
    options = _options(row.get("options"), problems, where)
    expected = row.get("expected_answer")
    if options and not (isinstance(expected, str) and expected in options):
        problems.append(RowError("expected_answer is not one of the options", got=expected,
                                 allowed=" ".join(options), where=where))  # fmt: skip
    mode = row.get("grading_mode")
    if mode is not None and (not isinstance(mode, str) or mode not in GRADING_MODES):
        problems.append(RowError("grading_mode is unknown", got=mode, allowed=" or ".join(GRADING_MODES),
                                 where=where))  # fmt: skip
    if problems:
        return None, problems
    return BoxedRow(options, cast("str", expected), cast("GradingMode | None", mode)), []


def _options(given: object, problems: list[RowError], where: Where | None) -> dict[str, str]:
    if not isinstance(given, list | tuple) or len(given) < 2:
        problems.append(RowError("options is no list of two or more", got=given, where=where))
        return {}
    options: dict[str, str] = {}
    before = len(problems)
    for option in given:
        # The sound case first and in one line: this runs for every answer that is scored.
        if type(option) is dict and len(option) == 1:
            ((letter, text),) = option.items()
            if type(text) is str and letter in _LETTERS and letter not in options:
                options[letter] = text
                continue
        problem = _option_problem(option, options)
        problems.append(RowError(problem, got=option, allowed='{"A": "text"}, letters A to J', where=where))
    return options if len(problems) == before else {}


def _option_problem(option: Any, seen: Mapping[str, str]) -> str:
    if type(option) is not dict or len(option) != 1:
        return "option is no object with one key"
    letter = next(iter(option))
    if letter not in _LETTERS:
        return "option key is no single letter"
    return "option text is no string" if letter not in seen else "option letter repeats"
