# SPDX-License-Identifier: Apache-2.0
"""Gym resources server for SA-V point, box and text-referred tracking: see ``nemo_gym_video.tasks.tracking``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture
from pydantic import Field

from nemo_gym_video.servers.stateless import StatelessConfig, StatelessServer
from nemo_gym_video.servers.verifier import ScoringRequest, nothing_to_seed, offline


class SavTracksConfig(StatelessConfig):
    """``absence_score`` holds for rows that set none."""

    rules: Literal["strict", "baseline"] = "strict"
    absence_score: float | None = Field(default=None, ge=0, le=1)


class SavTracksServer(StatelessServer):
    """Scores tracks."""

    config: SavTracksConfig
    scorer = "tracks"
    subset_key = "task"
    means = ("visibility_accuracy", "in_mask_rate", "mean_iou", "format_ok")

    def settings(self) -> Mapping[str, Any]:
        """The rule set, and what absence earns."""
        return {"rules": self.config.rules, "absence_score": self.config.absence_score}


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
