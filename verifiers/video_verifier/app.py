# SPDX-License-Identifier: Apache-2.0
"""Gym resources server of any task: the configuration names one. See ``nemo_gym_video.servers.task_verifier``."""

from functools import partial
from pathlib import Path

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture

from nemo_gym_video.servers.task_verifier import TaskVerifier, VerifierConfig, verify_by_its_task
from nemo_gym_video.servers.verifier import ScoringRequest, nothing_to_seed, offline

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
