# SPDX-License-Identifier: Apache-2.0
"""The task of tracking in chunks of frames, one a turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.episode_media import EpisodeMedia
from nemo_gym_video.tasks.sav_stream.stream import StreamEpisode, StreamResult, StreamRow, score_stream
from nemo_gym_video.tasks.task import Answer, Episode, Score, Task
from nemo_gym_video.tasks.tracking.blind import constant_answers
from nemo_gym_video.tasks.tracking.track_result import bad_track_row
from nemo_gym_video.tasks.tracking.track_row import check_track_row
from nemo_gym_video.tasks.tracking.track_task import MEANS, TrackSettings


class SavStream(Task[StreamRow]):
    """Hands out stills chunk by chunk and scores the whole clip."""

    Settings = TrackSettings
    required = frozenset({"task", "objects", "stream"})
    subset_key = "task"
    means = MEANS
    blind_teaches_nothing = True

    @classmethod
    def _checked(cls, raw: object, where: Where | None) -> tuple[StreamRow | None, list[RowError]]:
        _, problems = check_track_row(raw, where)
        if problems:
            return None, problems
        try:
            return StreamRow.from_row(raw, where), []
        except RowError as error:
            return None, [error]

    def score(self, row: StreamRow, answer: Answer) -> Score:
        """The rewards of tracking over the whole clip, and each chunk's numbers."""
        rules, absence_score = self.settings.rules, self.settings.absence_score
        result = score_stream(answer.output, row, rules=rules, absence_score=absence_score)
        return Score.from_json(result.to_json())

    def bad_row(self, error: RowError) -> Score:
        """With the fields that every other result has."""
        return Score.from_json(StreamResult(track=bad_track_row(error)).to_json())

    def blind(self, row: StreamRow) -> Mapping[str, Answer]:
        """The constant policies of tracking, each answering the cells of every chunk in its turn."""
        chunks = [constant_answers(row.track, chunk) for chunk in row.chunks]
        return {name: Answer(list(_items([chunk[name] for chunk in chunks]))) for name in chunks[0]}

    def episode(self, row: StreamRow, media: EpisodeMedia) -> Episode:
        """The row's stills, chunk by chunk."""
        del media
        return StreamEpisode(row)


def _items(answers: list[str]) -> Iterator[dict[str, Any]]:
    """Output items of an episode in which the model says ``answers``, turn by turn."""
    for number, text in enumerate(answers):
        if number:
            yield {"type": "message", "role": "user", "content": []}
        yield {"type": "message", "role": "assistant", "content": text}
