# SPDX-License-Identifier: Apache-2.0
"""``gym-video sample``: the frames that a loader takes from a clip."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import answer_lines
from nemo_gym_video.commands.shared_options import Convention, Jsonl, LinesFile, NumFrames, TargetFps
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.processors.sampling import sample_frames

_KEYS = ("convention", "total", "fps", "num_frames", "target_fps", "temporal_patch_size")


def sample(
    file: LinesFile = "-",
    jsonl: Jsonl = False,
    convention: Convention = "vllm",
    total: Annotated[int | None, typer.Option(help="Frames of the clip.")] = None,
    fps: Annotated[float | None, typer.Option(help="Frames a second of the clip.")] = None,
    num_frames: NumFrames = None,
    target_fps: TargetFps = None,
    temporal_patch_size: Annotated[int | None, typer.Option(help="Frames a tubelet (default 2).")] = None,
) -> None:
    """Show which frames a loader takes from a clip, with their times."""
    if jsonl:
        raise typer.Exit(answer_lines(file, answer))
    given = {
        "convention": convention,
        "total": total,
        "fps": fps,
        "num_frames": num_frames,
        "target_fps": target_fps,
        "temporal_patch_size": temporal_patch_size,
    }
    print(json.dumps(answer(given, None)))


def answer(request: dict[str, Any], where: Where | None) -> dict[str, Any]:
    """Answer one request object; ``RowError`` for an unknown key, a missing one, or a value out of range."""
    for key in request:
        if key not in _KEYS:
            raise RowError("unknown key in a sample request", got=key, allowed=", ".join(_KEYS), where=where)
    for key in ("convention", "total", "fps"):
        if request.get(key) is None:
            raise RowError(f"sample request lacks {key!r}", where=where)
    return asdict(sample_frames(**request, where=where))
