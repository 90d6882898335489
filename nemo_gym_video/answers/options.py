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
    if not isinstance(row, Mapping):
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
    return BoxedRow(options, cast(str, expected), cast(GradingMode | None, mode)), []


def _options(given: object, problems: list[RowError], where: Where | None) -> dict[str, str]:
    if not isinstance(given, list | tuple) or len(given) < 2:
        problems.append(RowError("options is no list of two or more", got=given, where=where))
        return {}
    options: dict[str, str] = {}
    before = len(problems)
    for option in given:
        problem = _option_problem(option, options)
        if problem:
            problems.append(RowError(problem, got=option, allowed='{"A": "text"}, letters A to J', where=where))
        else:
            options.update(option)
    return options if len(problems) == before else {}


def _option_problem(option: Any, seen: Mapping[str, str]) -> str:
    if not isinstance(option, Mapping) or len(option) != 1:
        return "option is no object with one key"
    ((letter, text),) = option.items()
    if not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS:
        return "option key is no single letter"
    if letter in seen:
        return "option letter repeats"
    return "" if isinstance(text, str) else "option text is no string"
