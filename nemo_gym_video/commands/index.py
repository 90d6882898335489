# SPDX-License-Identifier: Apache-2.0
"""``gym-video index``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nemo_gym_video.alignment import Occurrence, TurnIndex, index_turns
from nemo_gym_video.commands.jsonl import answer_lines
from nemo_gym_video.errors import Where


def index(
    rollouts: Annotated[
        str, typer.Argument(help="Rollouts as Gym writes them, one JSON object a line; - is stdin.")
    ],
    media_token_id: Annotated[
        list[int] | None, typer.Option(help="Placeholder token id; repeat it for several.", min=0)
    ] = None,
    processor: Annotated[
        str | None, typer.Option(help="Processor preset or checkpoint folder: tells runs of several videos apart.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="End with exit code 1 on any finding.")] = False,
) -> None:
    """Say for every rollout which media each turn saw first, and which prompt tokens are theirs."""
    found = 0
    settings = None
    if processor is not None:
        # start-up: most calls name no preset
        from nemo_gym_video.processors.presets import load_settings

        settings = load_settings(processor)

    def answer(rollout: dict[str, Any], where: Where) -> dict[str, Any]:
        nonlocal found
        result = index_turns(rollout, media_token_ids=media_token_id, processor=settings, where=where)
        found += len(result.findings)
        return index_json(result)

    code = answer_lines(rollouts, answer)
    if code or (check and found):
        raise typer.Exit(1)


def index_json(result: TurnIndex) -> dict[str, Any]:
    """The command's JSON form of one rollout's index."""
    return {
        "turns": [
            {"turn": turn.turn, "media": [_media_json(one, spans=True) for one in turn.media]}
            for turn in result.turns
        ],
        "unclaimed": [_media_json(one, spans=False) for one in result.unclaimed],
        "findings": [finding.to_json() for finding in result.findings],
    }


def _media_json(media: Occurrence, *, spans: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": media.kind,
        "media_id": media.media_id,
        "source": media.source,
        "frames": media.frames,
        "role": media.role,
    }
    if spans:
        found["spans"] = [list(span) for span in media.spans]
    return found | {"run_lengths": list(media.run_lengths), "provenance": media.provenance}
