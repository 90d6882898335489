# SPDX-License-Identifier: Apache-2.0
"""A verifier's work on one request, from bytes to bytes. Imports neither FastAPI nor nemo-gym."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.answers.visible import Output
from nemo_gym_video.tasks.registry import AnyTask
from nemo_gym_video.tasks.task import Answer, Score

TASK_ERROR = "nemo_gym_video:task_error"
"""``failure_kind`` of a sample whose task raised an error while it was scored."""


def result_fields(
    task: AnyTask, row: object, output: Output, episode: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The fields that a rollout gains. Raises for nothing: a task that breaks masks the sample."""
    try:
        score = task.score_raw(row, Answer(output, episode))
    except Exception as error:  # noqa: BLE001 a third party's task may raise anything, and must not end the worker
        problem = f"task {task.name} broke while scoring ({type(error).__name__}: {error})"[:500]
        score = Score(0.0, "task_error", explanation=f"Not a measurement: {problem}.", failure=problem,
                      failure_kind=TASK_ERROR)  # fmt: skip
    fields = score.to_json()
    if len(score.parts) == 1:
        # One objective: its component would only make the rows of a mixed run disagree on their names.
        del fields["reward_components"]
    return fields


def score_body(raw: bytes, task: AnyTask, episode: Mapping[str, Any] | None = None) -> bytes:
    """Answer a ``/verify`` body: the same object with the score's fields laid over it.

    ``episode`` is what the server itself kept of the rollout.

    Raises:
        RowError: the body is not a rollout to score (not an object, without a list of output items).
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RowError(f"body is not JSON ({error})", code="row.json") from error
    response = body.get("response") if isinstance(body, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list):
        raise RowError("body has no response with a list of output items", got=output)
    scores = result_fields(task, body, output, episode)
    # The row's own field stays as it is.
    scores = {name: value for name, value in scores.items() if name != "expected_answer" or name not in body}
    return orjson.dumps({"mask_sample": False, **body, **scores}, option=orjson.OPT_SERIALIZE_NUMPY)
