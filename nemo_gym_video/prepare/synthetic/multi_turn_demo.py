# SPDX-License-Identifier: Apache-2.0
"""Rows of the multi-turn environments for demos, tests and examples, from the single-turn ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemo_gym_video.messages import group_media, iter_media_parts, media_mode
from nemo_gym_video.prepare.synthetic.demo_rows import DemoRows
from nemo_gym_video.prepare.synthetic.multi_turn_rows import explorer_row, stream_row
from nemo_gym_video.prepare.whole_files import dump_line, write_text

ENVIRONMENTS = ("clip_explorer", "sav_stream")
_CHUNK = 6


def multi_turn_rows(made: DemoRows, *, per_environment: int) -> DemoRows:
    """Write up to ``per_environment`` rows for each multi-turn environment beside the single-turn ones.

    ``clip_explorer`` rows come from the questions about a native video, ``sav_stream`` rows alternate between
    points and boxes, in chunks of 6 frames.
    """
    questions = [row for row in _read(made.files["caprl_mcqa"]) if _mode(row) == "native_video"]
    pairs = zip(_read(made.files["sav_pt_tracks"]), _read(made.files["sav_box_tracks"]), strict=False)
    tracks = [row for pair in pairs for row in pair]
    rows = {
        "clip_explorer": [explorer_row(row) for row in questions[:per_environment]],
        "sav_stream": [stream_row(row, chunk=_CHUNK) for row in tracks[:per_environment]],
    }
    files = {name: made.media_root / f"{name}.jsonl" for name in ENVIRONMENTS}
    for name, file in files.items():
        write_text(file, "".join(dump_line(row) for row in rows[name]))
    return DemoRows(media_root=made.media_root, files=files)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _mode(row: Mapping[str, Any]) -> str:
    return media_mode(group_media(iter_media_parts(row["responses_create_params"]["input"])))
