# SPDX-License-Identifier: Apache-2.0
"""The scoring servers' work on one request, from bytes to bytes. Imports neither FastAPI nor nemo-gym."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.tracking.scoring import score_tracks


class Scorer(Protocol):
    """Scores a model's output against a row under a server's settings; the fields that a result gains."""

    def __call__(
        self, row: Mapping[str, Any], output: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Never raises for what a model said, and masks a row that is no measurement."""
        ...


def boxed(row: Mapping[str, Any], output: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Boxed letters: see ``answers.boxed``."""
    scores = score_boxed_row(output, row, grading_mode=settings["grading_mode"]).to_json()
    # The row's own field stays as it is. One objective: components would only make rows of a mixed run disagree
    # on their names.
    del scores["expected_answer"], scores["reward_components"]
    return scores


def tracks(row: Mapping[str, Any], output: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tracks: see ``tracking.scoring``. A row's own ``absence_score`` wins over the server's."""
    result = score_tracks(output, row, rules=settings["rules"], absence_score=settings["absence_score"])
    return result.to_json()


SCORERS: dict[str, Scorer] = {"boxed": boxed, "tracks": tracks}


def score_body(raw: bytes, scorer: str, settings: Mapping[str, Any]) -> bytes:
    """Answer a ``/verify`` body: the same object with the score's fields laid over it.

    Raises:
        RowError: the body is no rollout to score (no object, no list of output items).
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RowError(f"body is no JSON ({error})", code="row.json") from error
    response = body.get("response") if isinstance(body, dict) else None
    output = response.get("output") if isinstance(response, dict) else None
    if not isinstance(output, list):
        raise RowError("body has no response with a list of output items", got=output)
    scores = SCORERS[scorer](body, output, settings)
    return orjson.dumps({"mask_sample": False, **body, **scores}, option=orjson.OPT_SERIALIZE_NUMPY)
