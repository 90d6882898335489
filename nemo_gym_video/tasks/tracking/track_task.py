# SPDX-License-Identifier: Apache-2.0
"""The task of following points, boxes and described objects through a clip."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.task import Answer, Score, Task, TaskSettings
from nemo_gym_video.tasks.tracking.blind import constant_answers
from nemo_gym_video.tasks.tracking.entries import Rules
from nemo_gym_video.tasks.tracking.scoring import score_tracks
from nemo_gym_video.tasks.tracking.track_result import bad_track_row
from nemo_gym_video.tasks.tracking.track_row import TrackRow, check_track_row

MEANS = ("visibility_accuracy", "in_mask_rate", "mean_iou", "format_ok")


class TrackSettings(TaskSettings):
    """``absence_score`` holds for rows that set none."""

    rules: Rules = "strict"
    absence_score: float | None = Field(default=None, ge=0, le=1)


class SavTracks(Task[TrackRow]):
    """Scores tracks, given as strict JSON, against masks and boxes."""

    Settings = TrackSettings
    aliases = ("tracks",)
    subset_key = "task"
    means = MEANS
    blind_teaches_nothing = True

    @classmethod
    def _checked(cls, raw: object, where: Where | None) -> tuple[TrackRow | None, list[RowError]]:
        return check_track_row(raw, where)

    def score(self, row: TrackRow, answer: Answer) -> Score:
        """The mean over objects and frames; see ``docs/scoring.md``."""
        rules, absence_score = self.settings.rules, self.settings.absence_score
        return Score.from_json(
            score_tracks(answer.output, row, rules=rules, absence_score=absence_score).to_json()
        )

    def bad_row(self, error: RowError) -> Score:
        """With the fields that every other result has."""
        return Score.from_json(bad_track_row(error).to_json())

    def blind(self, row: TrackRow) -> Mapping[str, str]:
        """Everything absent, at its reference, or in the middle of the frame."""
        return constant_answers(row)
