# SPDX-License-Identifier: Apache-2.0
"""The task of answering a question about a long clip by asking for parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.boxed.boxed_task import blind_letters
from nemo_gym_video.tasks.boxed.options import BoxedRow, GradingMode, check_boxed_row
from nemo_gym_video.tasks.clip_explorer.explorer import (
    ExplorerCosts,
    ExplorerEpisode,
    ExplorerLimits,
    Transport,
    recount,
    score_exploration,
)
from nemo_gym_video.tasks.episode_media import EpisodeMedia
from nemo_gym_video.tasks.task import Answer, Episode, Score, Task, TaskSettings


class ExplorerSettings(TaskSettings):
    """What an episode may use, and what that costs."""

    max_turns: int = Field(default=8, gt=0, description="Model turns of an episode, the final answer included.")
    max_frames: int = Field(default=32, gt=0, description="Frames in one answer.")
    overview_frames: int = Field(default=8, gt=0, description="Frames of the first observation.")
    transport: Transport = Field(
        default="manifest", description="How clips are sent: cached frames, a cut H.264 clip, or single images."
    )
    turn_cost: float = Field(default=0.0, ge=0, description="Reward that each request takes off a right answer.")
    frame_cost: float = Field(default=0.0, ge=0, description="Reward that each frame shown takes off.")
    grading_mode: GradingMode = "strict_single_letter_boxed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerRow:
    """A question, the clip it is about, and the row's own limits (see ``ExplorerLimits``)."""

    question: BoxedRow
    video: str
    explorer: Mapping[str, Any]


class ClipExplorer(Task[ExplorerRow]):
    """Shows parts of a clip on request and scores the boxed answer."""

    Settings = ExplorerSettings
    required = frozenset({"options", "expected_answer", "video"})
    answer_key = "extracted_answer"

    @classmethod
    def _checked(cls, raw: object, where: Where | None) -> tuple[ExplorerRow | None, list[RowError]]:
        question, problems = check_boxed_row(raw, where=where)
        if question is None or not isinstance(raw, Mapping):
            return None, problems
        video, explorer = raw.get("video"), raw.get("explorer") or {}
        if not isinstance(video, str):
            problems.append(RowError("row names no video", got=video, where=where))
        if not isinstance(raw.get("explorer"), Mapping | None):
            problems.append(RowError("explorer is not an object", got=raw["explorer"], where=where))
        else:
            try:
                ExplorerLimits.from_json(explorer, where=where)
            except RowError as error:
                problems.append(error)
        if problems:
            return None, problems
        return ExplorerRow(question=question, video=str(video), explorer=explorer), []

    def limits(self, row: ExplorerRow) -> ExplorerLimits:
        """The server's limits, with the row's own over them."""
        names = ("max_turns", "max_frames", "overview_frames", "transport")
        return ExplorerLimits.from_json(
            {name: getattr(self.settings, name) for name in names} | dict(row.explorer)
        )

    def episode(self, row: ExplorerRow, media: EpisodeMedia) -> Episode:
        """Open the row's clip."""
        return ExplorerEpisode(media.open(row.video), media, self.limits(row))

    def score(self, row: ExplorerRow, answer: Answer) -> Score:
        """The last turn's boxed answer, less the cost of what was shown.

        Usage is the server's own count. Without a session (a stored rollout) it is counted again from the output
        items; never is it what the rollout says of itself.
        """
        usage = answer.episode
        if usage is None:
            output = answer.output if not isinstance(answer.output, str) else []
            usage = recount(output, overview_frames=self.limits(row).overview_frames)
        costs = ExplorerCosts(turn=self.settings.turn_cost, frame=self.settings.frame_cost)
        grading_mode = self.settings.grading_mode
        scores = score_exploration(
            answer.output, row.question, usage=usage, costs=costs, grading_mode=grading_mode
        )
        return Score.from_json(scores)

    def blind(self, row: ExplorerRow) -> Mapping[str, str]:
        """As for any choice between options, in the first turn."""
        return blind_letters(row.question)
