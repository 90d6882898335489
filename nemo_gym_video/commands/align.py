# SPDX-License-Identifier: Apache-2.0
"""``gym-video align``: what the engine did with a row's media, from the token ids of its model calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from nemo_gym_video.alignment.align_requests import align_request
from nemo_gym_video.alignment.findings import Alignment
from nemo_gym_video.commands.jsonl import answer_lines, open_lines, parse_object
from nemo_gym_video.errors import Where


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
