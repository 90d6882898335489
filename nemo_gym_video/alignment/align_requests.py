# SPDX-License-Identifier: Apache-2.0
"""Reads a request to align, a contract with its model calls or a whole rollout, and asks the judge."""

from __future__ import annotations

import dataclasses
from typing import Any

from nemo_gym_video.alignment.calls import Alignment, ModelCall, align_calls
from nemo_gym_video.alignment.turns import index_turns
from nemo_gym_video.contract import RowContract
from nemo_gym_video.errors import RowError, Where

_KEYS = ("contract", "calls", "media_token_ids")
_CALL_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "items")


def align_request(request: dict[str, Any], where: Where | None) -> Alignment:
    """Align ``{"contract": …, "calls": [{"prompt_token_ids": […], "generation_token_ids": […], "items": […]}]}``.

    A whole rollout, as Gym writes it (an object with ``response``), is judged as ``gym-video index`` does.

    A call's ``items`` are what the environment brought with it, in the form of the contract's items.

    Raises:
        RowError: the request has another shape.
        ContractError: the contract does.
        AlignmentError: token ids do, or nobody says which are media.
    """
    if "response" in request:
        return index_turns(request, where=where).alignment
    _refuse_unknown(request, _KEYS, "align request", where)
    if request.get("contract") is None:
        raise RowError("align request lacks 'contract'", where=where)
    calls_json = request.get("calls")
    if not isinstance(calls_json, list) or not all(isinstance(call, dict) for call in calls_json):
        raise RowError("align request needs a list of calls", got=type(calls_json).__name__, where=where)
    ids = request.get("media_token_ids")
    if ids is not None and not (isinstance(ids, list) and ids and all(type(number) is int for number in ids)):
        raise RowError("media_token_ids is no list of token ids", got=ids, where=where)
    contract = RowContract.from_json(request["contract"], where=where)
    if any(call.get("items") for call in calls_json):
        # Media that a call brings is named, so what the row has itself must be there from the first call on.
        own = tuple(dataclasses.replace(item, turn=item.turn or 0) for item in contract.items)
        contract = dataclasses.replace(contract, items=own)
    calls = []
    for turn, call in enumerate(calls_json):
        place = Where(file=where.file, line=where.line, turn=turn) if where else Where(turn=turn)
        _refuse_unknown(call, _CALL_KEYS, "call", place)
        if call.get("prompt_token_ids") is None:
            raise RowError("call lacks 'prompt_token_ids'", where=place)
        if call.get("items"):
            brought = RowContract.from_json({"items": call["items"]}, where=place).items
            contract = dataclasses.replace(
                contract, items=(*contract.items, *(dataclasses.replace(item, turn=turn) for item in brought))
            )
        calls.append(
            ModelCall(
                prompt_token_ids=call["prompt_token_ids"],
                generation_token_ids=call.get("generation_token_ids") or (),
            )
        )
    return align_calls(contract.completed(), calls, media_token_ids=ids)


def _refuse_unknown(value: dict[str, Any], known: tuple[str, ...], what: str, where: Where | None) -> None:
    for key in value:
        if key not in known:
            raise RowError(f"unknown key in {what}", got=key, allowed=", ".join(known), where=where)
