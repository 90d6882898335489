# SPDX-License-Identifier: Apache-2.0
"""``gym-video sample``: the frames that a loader takes from a clip."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import answer_lines
from nemo_gym_video.commands.shared_options import Jsonl, LinesFile, NumFrames, TargetFps
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.processors.loaders.loader_requests import LOADER_KEYS, answer_loader
from nemo_gym_video.processors.sampling import sample_frames

_KEYS = ("convention", "total", "fps", "num_frames", "target_fps", "temporal_patch_size")


def sample(
    file: LinesFile = "-",
    jsonl: Jsonl = False,
    convention: Annotated[str | None, typer.Option(help="vllm (default), nemo_rl, qwen2_vl or qwen3_vl.")] = None,
    loader: Annotated[
        str | None, typer.Option(help="An engine's loader in place of a convention: opencv, qwen3_vl, …")
    ] = None,
    video_processor: Annotated[
        str | None, typer.Option(help="The checkpoint's video_processor_type; decides loader and second sampling.")
    ] = None,
    media_io_kwargs: Annotated[str | None, typer.Option(help="As the engine is started with, JSON.")] = None,
    total: Annotated[int | None, typer.Option(help="Frames of the clip.")] = None,
    fps: Annotated[float | None, typer.Option(help="Frames a second of the clip.")] = None,
    num_frames: NumFrames = None,
    target_fps: TargetFps = None,
    temporal_patch_size: Annotated[int | None, typer.Option(help="Frames a tubelet (default 2).")] = None,
) -> None:
    """Show which frames a loader takes from a clip, with their times."""
    if jsonl:
        raise typer.Exit(answer_lines(file, answer))
    given: dict[str, Any] = {
        "convention": convention,
        "loader": loader,
        "video_processor": video_processor,
        "media_io_kwargs": media_io_kwargs,
        "total": total,
        "fps": fps,
        "num_frames": num_frames,
        "target_fps": target_fps,
        "temporal_patch_size": temporal_patch_size,
    }
    request = {key: value for key, value in given.items() if value is not None}
    if LOADER_KEYS.isdisjoint(request):
        request.setdefault("convention", "vllm")
    print(json.dumps(answer(request, None)))


def answer(request: dict[str, Any], where: Where | None) -> dict[str, Any]:
    """Answer one request object; ``RowError`` for an unknown key, a missing one, or a value out of range."""
    if not LOADER_KEYS.isdisjoint(request):
        return answer_loader(request, where)
    for key in request:
        if key not in _KEYS:
            raise RowError("unknown key in a sample request", got=key, allowed=", ".join(_KEYS), where=where)
    for key in ("convention", "total", "fps"):
        if request.get(key) is None:
            raise RowError(f"sample request lacks {key!r}", where=where)
    return asdict(sample_frames(**request, where=where))
