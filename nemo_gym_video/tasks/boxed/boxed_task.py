# SPDX-License-Identifier: Apache-2.0
"""The task of multiple-choice questions with a boxed letter."""

from __future__ import annotations

from collections.abc import Mapping

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.boxed.boxed_answer import BoxedResult, score_boxed_row
from nemo_gym_video.tasks.boxed.options import LETTERS, BoxedRow, GradingMode, check_boxed_row
from nemo_gym_video.tasks.task import Answer, Score, Task, TaskSettings


class BoxedSettings(TaskSettings):
    """A row's own ``grading_mode`` wins."""

    grading_mode: GradingMode = "strict_single_letter_boxed"


class BoxedMcqa(Task[BoxedRow]):
    """Scores the letter in the last box."""

    Settings = BoxedSettings
    aliases = ("boxed",)
    answer_key = "extracted_answer"

    @classmethod
    def _checked(cls, raw: object, where: Where | None) -> tuple[BoxedRow | None, list[RowError]]:
        return check_boxed_row(raw, where=where)

    def score(self, row: BoxedRow, answer: Answer) -> Score:
        """Right or wrong."""
        return boxed_score(score_boxed_row(answer.output, row, grading_mode=self.settings.grading_mode))

    def blind(self, row: BoxedRow) -> Mapping[str, str]:
        """The first option, and every letter that an option can have."""
        return blind_letters(row)


def boxed_score(result: BoxedResult) -> Score:
    """A boxed result as a score."""
    return Score(
        result.reward,
        result.reason,
        parts={"correct": result.reward},
        explanation=result.explain(),
        details={"extracted_answer": result.letter, "expected_answer": result.expected_answer},
        failure=result.failure_reason,
        failure_kind=result.failure_kind,
    )


def blind_letters(row: BoxedRow) -> dict[str, str]:
    r"""``\boxed{…}`` with the row's first letter, and with each letter whether the row has it or not."""
    answers = {"first option": f"\\boxed{{{next(iter(row.options))}}}"}
    return answers | {f"always {letter}": f"\\boxed{{{letter}}}" for letter in LETTERS}
