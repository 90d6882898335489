# SPDX-License-Identifier: Apache-2.0
r"""Gym resources server for multiple-choice rows with a ``\boxed{}`` letter: see ``nemo_gym_video.answers``."""

from pathlib import Path
from typing import Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture

from nemo_gym_video.answers.boxed import score_boxed_row
from nemo_gym_video.gym.verifier import (
    ScoringConfig,
    ScoringRequest,
    ScoringResponse,
    ScoringServer,
    nothing_to_seed,
    offline,
)


class BoxedMcqaConfig(ScoringConfig):
    """``grading_mode`` holds for rows that name none."""

    grading_mode: Literal["strict_single_letter_boxed", "lenient_boxed"] = "strict_single_letter_boxed"


class BoxedMcqaServer(ScoringServer):
    """Scores boxed letters."""

    config: BoxedMcqaConfig
    answer_key = "extracted_answer"

    async def verify(self, body: ScoringRequest) -> ScoringResponse:
        """The reward, its reason, and the letter that was read."""
        row, answer, mode = body.row(), body.answer(), self.config.grading_mode
        result = await self.in_pool(lambda: score_boxed_row(answer, row, grading_mode=mode))
        scores = result.to_json()
        # The row's own field stays as it is. One objective: components would only make rows of a mixed run
        # disagree on their names.
        del scores["expected_answer"], scores["reward_components"]
        return ScoringResponse(**{**body.model_dump(), **scores})


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
