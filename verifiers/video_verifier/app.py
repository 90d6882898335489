# SPDX-License-Identifier: Apache-2.0
"""Gym resources server of any task: the configuration names one. See ``nemo_gym_video.servers.task_verifier``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture

from nemo_gym_video.servers.task_verifier import TaskVerifier, VerifierConfig
from nemo_gym_video.servers.verifier import ScoringRequest, ScoringResponse, nothing_to_seed, offline
from nemo_gym_video.tasks.registry import task_of_row


async def verify_by_its_task(serve: Callable[..., TaskVerifier], request: ScoringRequest) -> ScoringResponse:
    """Score a fixture's case with a server of the task that its row belongs to."""
    return await serve(task=task_of_row(request.row()).name).verify(request)


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: partial(offline, TaskVerifier, VerifierConfig),
    request_model=ScoringRequest,
    invoke=verify_by_its_task,
    reseed=nothing_to_seed,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    TaskVerifier.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = TaskVerifier.run_webserver()
