# SPDX-License-Identifier: Apache-2.0
"""Rows of the multi-turn environments for demos, tests and examples, from the single-turn ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nemo_gym_video.episodes.rows import explorer_row, stream_row
from nemo_gym_video.messages import group_media, iter_media_parts, media_mode
from nemo_gym_video.prepare.demo import DemoRows, demo_rows
from nemo_gym_video.prepare.files import dump_line, write_text

ENVIRONMENTS = ("clip_explorer", "sav_stream")
_CHUNK = 6


def multi_turn_demo_rows(
    output_dir: Path,
    *,
    seed: int = 0,
    per_environment: int = 8,
    size: tuple[int, int] = (320, 180),
    seconds: float = 4.5,
    num_frames: int = 24,
) -> DemoRows:
    """Render clips under ``output_dir`` and write ``per_environment`` rows for each multi-turn environment.

    ``sav_stream`` rows alternate between points and boxes, ``chunk`` is 6 frames.
    """
    made = demo_rows(
        output_dir,
        seed=seed,
        per_environment=2 * per_environment,
        size=size,
        seconds=seconds,
        num_frames=num_frames,
        question_frames=2,
        environments=("caprl_mcqa", "sav_pt_tracks", "sav_box_tracks"),
    )
    questions = [row for row in _read(made.files["caprl_mcqa"]) if _mode(row) == "native_video"]
    pairs = zip(_read(made.files["sav_pt_tracks"]), _read(made.files["sav_box_tracks"]), strict=False)
    tracks = [row for pair in pairs for row in pair]
    rows: dict[str, list[dict[str, Any]]] = {
        "clip_explorer": _converted(questions, explorer_row, per_environment),
        "sav_stream": _converted(tracks, lambda row: stream_row(row, chunk=_CHUNK), per_environment),
    }
    files = {name: output_dir / f"{name}.jsonl" for name in ENVIRONMENTS}
    for name, file in files.items():
        write_text(file, "".join(dump_line(row) for row in rows[name]))
    return DemoRows(media_root=made.media_root, files=files)


def _converted(
    rows: list[dict[str, Any]], convert: Callable[[Mapping[str, Any]], dict[str, Any]], count: int
) -> list[dict[str, Any]]:
    return [convert(row) for row in rows[:count]]


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _mode(row: Mapping[str, Any]) -> str:
    return media_mode(group_media(iter_media_parts(row["responses_create_params"]["input"])))
