# SPDX-License-Identifier: Apache-2.0
r"""Gym resources server: multiple-choice rows with a ``\boxed{}`` letter: see ``nemo_gym_video.tasks.boxed``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture

from nemo_gym_video.servers.stateless import StatelessConfig, StatelessServer
from nemo_gym_video.servers.verifier import ScoringRequest, nothing_to_seed, offline


class BoxedMcqaConfig(StatelessConfig):
    """``grading_mode`` holds for rows that name none."""

    grading_mode: Literal["strict_single_letter_boxed", "lenient_boxed"] = "strict_single_letter_boxed"


class BoxedMcqaServer(StatelessServer):
    """Scores boxed letters."""

    config: BoxedMcqaConfig
    scorer = "boxed"
    answer_key = "extracted_answer"

    def settings(self) -> Mapping[str, Any]:
        """The grading mode."""
        return {"grading_mode": self.config.grading_mode}


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: offline(BoxedMcqaServer, BoxedMcqaConfig),
    request_model=ScoringRequest,
    reseed=nothing_to_seed,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    BoxedMcqaServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = BoxedMcqaServer.run_webserver()
