# SPDX-License-Identifier: Apache-2.0
"""``python -m nemo_gym_video.baseline``: serve the baseline until told to stop or the parent process ends."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from nemo_gym_video.errors import NemoGymVideoError, ProcessorSettingsError
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.presets import load_settings


class SamplingConvention(StrEnum):
    """Sampling conventions for native videos."""

    NEMO_RL = "nemo_rl"
    VLLM = "vllm"


class TilePolicy(StrEnum):
    """Whether the images of a request share one budget."""

    JOINT = "joint"
    PER_IMAGE = "per-image"


def main(
    port: Annotated[int, typer.Option(help="Port to serve on; 0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    media_root: Annotated[
        list[Path] | None, typer.Option(help="Folder that media may come from; repeatable.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model name to serve as.")] = "baseline",
    num_frames: Annotated[int, typer.Option(min=1, help="Frames to sample from a native video.")] = 32,
    sampling: Annotated[
        SamplingConvention, typer.Option(help="How frames of a native video are chosen.")
    ] = SamplingConvention.NEMO_RL,
    max_model_len: Annotated[int, typer.Option(min=1, help="Context length in tokens.")] = 131072,
    processor: Annotated[str, typer.Option(help="Processor preset or checkpoint folder.")] = "nemotron_omni",
    tile_policy: Annotated[
        TilePolicy, typer.Option(help="For tests: budget the images of a request together, or each alone.")
    ] = TilePolicy.JOINT,
    processor_overrides: Annotated[
        str, typer.Option(help="For tests: JSON of settings to change, so that counts differ from a trainer's.")
    ] = "{}",
) -> None:
    """Serve the classical-vision baseline with vLLM's HTTP surface; prints {"port": N} when ready."""
    # Asked before anything else: a parent that goes while this process still starts would never be missed.
    parent = os.getppid()
    if importlib.util.find_spec("cv2") is None:
        raise ProcessorSettingsError("the baseline needs OpenCV", allowed="pip install 'nemo-gym-video[baseline]'")
    import cv2  # extra: baseline

    from nemo_gym_video.baseline.engine import Engine  # extra: baseline
    from nemo_gym_video.baseline.processor import MediaProcessor, ProcessorConfig  # extra: baseline
    from nemo_gym_video.baseline.server import serve  # extra: baseline

    # The server has its own worker threads, and one thread each gives the same result everywhere.
    cv2.setNumThreads(1)
    settings = load_settings(processor, overrides=_read_overrides(processor_overrides))
    if not isinstance(settings, NemotronOmniSettings):
        raise ProcessorSettingsError("the baseline has a Nemotron Omni tokenizer", got=settings.family,
                                     allowed=NemotronOmniSettings.family, where=processor)  # fmt: skip
    config = ProcessorConfig(
        settings=settings,
        max_model_len=max_model_len,
        media_roots=tuple(media_root or ()),
        num_frames=num_frames,
        sampling=sampling.value,
        joint_budget=tile_policy is TilePolicy.JOINT,
    )
    serve(
        Engine(MediaProcessor(config), model=model, max_model_len=max_model_len),
        host=host,
        port=port,
        parent=parent,
    )


def _read_overrides(text: str) -> dict[str, Any]:
    try:
        overrides = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProcessorSettingsError(f"processor overrides are not valid JSON ({error})"[:300]) from error
    if not isinstance(overrides, dict):
        raise ProcessorSettingsError("processor overrides are no JSON object", got=overrides)
    return overrides


if __name__ == "__main__":
    try:
        typer.run(main)
    except NemoGymVideoError as problem:
        print(f"baseline: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
