# SPDX-License-Identifier: Apache-2.0
"""``gym-video align``: what the engine did with a row's media, from the token ids of its model calls."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.alignment.calls import Alignment, ModelCall, align_calls
from nemo_gym_video.commands.jsonl import answer_lines, open_lines, parse_object
from nemo_gym_video.contract import RowContract
from nemo_gym_video.errors import RowError, Where

_KEYS = ("contract", "calls", "media_token_ids")
_CALL_KEYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "items")


def align(
    file: Annotated[
        str, typer.Argument(help="Rollouts or requests, one JSON object a line; - is standard input.")
    ] = "-",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One answer a line out, for programs.")] = False,
) -> None:
    """Compare media with token ids: of whole rollouts, or of a contract and its model calls."""
    if jsonl:
        raise typer.Exit(answer_lines(file, answer))
    with open_lines(file) as lines:
        trusted = True
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = Where(file="stdin" if file == "-" else file, line=number)
                alignment = align_request(parse_object(line, where), where)
                trusted = trusted and alignment.trustworthy
                _show(number, alignment)
    raise typer.Exit(0 if trusted else 1)


def answer(request: dict[str, Any], where: Where | None) -> dict[str, Any]:
    """Answer one request object as JSON."""
    return align_request(request, where).to_json()


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


def _show(number: int, alignment: Alignment) -> None:
    # start-up: programs ask for JSON lines and need no table
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    words = "trustworthy" if alignment.trustworthy else "to be masked"
    console.print(f"line {number}: {words}", markup=False)
    table = Table("turn", "item", "runs", "tokens", "status", "whose", "patch grid", box=None, pad_edge=False)
    for (turn, item), group in itertools.groupby(alignment.regions, key=lambda region: (region.turn, region.item)):
        regions = list(group)
        lengths = [length for region in regions for length in region.run_lengths]
        same = len(set(lengths)) == 1
        table.add_row(
            str(turn),
            str(item),
            f"{len(lengths)} x {lengths[0]}" if same else f"{len(lengths)} runs",
            str(sum(lengths)),
            _common(region.status for region in regions),
            _common(region.provenance for region in regions),
            _common("-" if region.grid is None else "{1}x{0}".format(*region.grid) for region in regions),
        )
    if alignment.regions:
        console.print(table)
    for finding in alignment.findings:
        turn = "" if finding.turn is None else f", turn {finding.turn}"
        console.print(f"{finding.kind}{turn}: {finding.message}", markup=False)


def _common(values: Iterable[str]) -> str:
    found = list(dict.fromkeys(values))
    return found[0] if len(found) == 1 else "mixed"
