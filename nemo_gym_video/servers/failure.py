# SPDX-License-Identifier: Apache-2.0
"""Samples that are no measurement: rows that could not be rolled out, and results that must not be trained on.

Both are ordinary answers, never HTTP errors: one bad row must not end a collection or a training step. Gym's
collection puts a result with ``_ng_failure_class`` into its failures file and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym_video.errors import (
    AlignmentError,
    ContractError,
    MediaDecodeError,
    MediaSourceError,
    NemoGymVideoError,
    ProcessorSettingsError,
    RowError,
)

MEDIA_ALIGNMENT = "nemo_gym_video:media_alignment"
BAD_ROW = "nemo_gym_video:bad_row"
PROMPT_REFUSED = "nemo_gym_video:prompt_refused"

# Codes that say more than their class.
_KINDS_OF_CODES = {
    "engine.unreachable": "transport_unreachable",
    "engine.timeout": "transport_timeout",
    "engine.row_refused": BAD_ROW,
    "engine.prompt_too_long": PROMPT_REFUSED,
    "verifier.failed": "verifier_error",
    "verifier.unreachable": "transport_unreachable",
    "verifier.timeout": "transport_timeout",
    "verifier.row_refused": BAD_ROW,
    "verifier.session_lost": "session_lost",
}
_KINDS: dict[type[NemoGymVideoError], str] = {
    RowError: BAD_ROW,
    MediaSourceError: "nemo_gym_video:media_source",
    MediaDecodeError: "nemo_gym_video:media_decode",
    ContractError: "nemo_gym_video:contract",
    AlignmentError: MEDIA_ALIGNMENT,
    ProcessorSettingsError: "nemo_gym_video:processor_settings",
}
_NO_MEASUREMENT = frozenset({"engine.unreachable", "engine.timeout"})
# Another attempt cannot mend these; a file that was missing may be there the next time.
_TERMINAL = frozenset({BAD_ROW, "nemo_gym_video:contract", "nemo_gym_video:processor_settings"})


def failure_kind(error: NemoGymVideoError) -> str:
    """The groupable name of an error, in nemo-gym's vocabulary or under this package's prefix.

    Decided by the error's code where that says more than its class, else by its class.
    """
    by_code = _KINDS_OF_CODES.get(error.code)
    return by_code or next((kind for known, kind in _KINDS.items() if isinstance(error, known)), "agent_run_error")


def masked(kind: str, reason: str, *, code: str) -> dict[str, Any]:
    """The fields that take a result out of scores and training; ``code`` is a key of ``ERROR_CODES``."""
    return {
        "mask_sample": True,
        "failure_kind": kind,
        "failure_code": code,
        "failure_reason": reason,
        # Where NeMo RL looked before the field stood at the top level.
        "instance_config": {"mask_sample": True},
    }


def cut_short(error: NemoGymVideoError) -> dict[str, Any]:
    """The fields for an episode that a failed model call ended after its first turn.

    An engine that cannot be reached is no measurement; one that refused the request (a prompt that grew too long)
    is what the policy's own turns led to, and what they earned stands.
    """
    kind, reason = failure_kind(error), str(error)
    if error.code in _NO_MEASUREMENT:
        return masked(kind, reason, code=error.code)
    return {"failure_kind": kind, "failure_code": error.code, "failure_reason": reason}


def failed_row(row: Mapping[str, Any], error: NemoGymVideoError) -> dict[str, Any]:
    """The answer to ``/run`` for a row that was not rolled out: the row, no output, and why."""
    kind, reason = failure_kind(error), str(error)
    return {
        **row,
        "response": _empty_response(),
        "reward": 0.0,
        **masked(kind, reason, code=error.code),
        "_ng_failure_class": kind,
        "_ng_failure_message": reason,
        "_ng_failure_terminal": kind in _TERMINAL,
    }


def _empty_response() -> dict[str, Any]:
    return {
        "id": "none",
        "created_at": 0,
        "model": "none",
        "object": "response",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "status": "failed",
    }
