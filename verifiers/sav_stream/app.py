# SPDX-License-Identifier: Apache-2.0
"""Gym resources server for tracking in chunks of frames: see ``nemo_gym_video.tasks.sav_stream.stream``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture
from pydantic import Field

from nemo_gym_video.servers.stepping import SteppedEpisode, SteppingConfig, SteppingServer
from nemo_gym_video.servers.verifier import ComponentsResponse, ScoringRequest, nothing_to_seed, offline
from nemo_gym_video.tasks.observation import Observation
from nemo_gym_video.tasks.sav_stream.stream import StreamEpisode, StreamRow, score_stream


class SavStreamConfig(SteppingConfig):
    """``absence_score`` holds for rows that set none."""

    rules: Literal["strict", "baseline"] = "strict"
    absence_score: float | None = Field(default=None, ge=0, le=1)


class SavStreamServer(SteppingServer):
    """Hands out stills chunk by chunk and scores the whole clip."""

    config: SavStreamConfig
    subset_key = "task"
    means = ("visibility_accuracy", "in_mask_rate", "mean_iou", "format_ok")

    def begin(self, row: Mapping[str, Any]) -> tuple[SteppedEpisode, Observation]:
        """Check the row and show the first chunk."""
        episode = StreamEpisode(StreamRow.from_row(row))
        return episode, episode.first()

    async def verify(self, body: ScoringRequest) -> ComponentsResponse:
        """The reward over the whole clip, and each chunk's numbers."""
        row, answer, config = body.row(), body.answer(), self.config
        result = await self.in_pool(
            lambda: score_stream(answer, row, rules=config.rules, absence_score=config.absence_score)
        )
        return ComponentsResponse(**{**body.model_dump(), **result.to_json()})


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: offline(SavStreamServer, SavStreamConfig),
    request_model=ScoringRequest,
    reseed=nothing_to_seed,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    SavStreamServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SavStreamServer.run_webserver()
