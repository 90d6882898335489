# SPDX-License-Identifier: Apache-2.0
"""Gym resources server for SA-V point, box and text-referred tracking: see ``nemo_gym_video.tracking``."""

from pathlib import Path
from typing import Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture
from pydantic import Field

from nemo_gym_video.gym.verifier import (
    ComponentsResponse,
    ScoringConfig,
    ScoringRequest,
    ScoringServer,
    nothing_to_seed,
    offline,
)
from nemo_gym_video.tracking.scoring import score_tracks


class SavTracksConfig(ScoringConfig):
    """``absence_score`` holds for rows that set none."""

    rules: Literal["strict", "baseline"] = "strict"
    absence_score: float | None = Field(default=None, ge=0, le=1)


class SavTracksServer(ScoringServer):
    """Scores tracks."""

    config: SavTracksConfig
    subset_key = "task"
    means = ("visibility_accuracy", "in_mask_rate", "mean_iou", "format_ok")

    async def verify(self, body: ScoringRequest) -> ComponentsResponse:
        """The reward with its components, its reason, and what every cell earned."""
        row, answer, config = body.row(), body.answer(), self.config
        row_sets_its_own = "absence_score" in row
        absence_score = None if row_sets_its_own else config.absence_score
        result = await self.in_pool(
            lambda: score_tracks(answer, row, rules=config.rules, absence_score=absence_score)
        )
        return ComponentsResponse(**{**body.model_dump(), **result.to_json()})


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: offline(SavTracksServer, SavTracksConfig),
    request_model=ScoringRequest,
    reseed=nothing_to_seed,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    SavTracksServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = SavTracksServer.run_webserver()
