# SPDX-License-Identifier: Apache-2.0
"""Rows of all environments from synthetic clips, through the preparation code: for demos, tests and examples."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemo_gym_video.messages import group_media, iter_media_parts, media_mode
from nemo_gym_video.prepare.sav.sav_rows import TrackRules
from nemo_gym_video.prepare.synthetic.clips import SyntheticSet, synthesize
from nemo_gym_video.prepare.synthetic.multi_turn_rows import explorer_row, stream_row
from nemo_gym_video.prepare.synthetic.questions import read_question
from nemo_gym_video.prepare.synthetic.suite import question_source, track_source
from nemo_gym_video.prepare.whole_files import dump_line, write_text
from nemo_gym_video.tasks.tracking.schema import Task

ENVIRONMENTS: dict[str, Task | None] = {
    "caprl_mcqa": None,
    "sav_pt_tracks": "pt",
    "sav_box_tracks": "box",
    "sav_ref_tracks": "ref",
}
MULTI_TURN = ("clip_explorer", "sav_stream")
_CHUNK = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRows:
    """``files`` gives a JSONL file for each environment; relative media in it resolve against ``media_root``."""

    media_root: Path
    files: Mapping[str, Path]


def demo_rows(
    output_dir: Path,
    *,
    seed: int = 0,
    per_environment: int = 8,
    size: tuple[int, int] = (320, 180),
    seconds: float = 4.5,
    num_frames: int = 24,
    question_frames: int = 64,
    environments: Sequence[str] = tuple(ENVIRONMENTS),
    real: bool | None = None,
) -> DemoRows:
    """Render clips under ``output_dir/native`` and prepare ``per_environment`` rows for each environment.

    Half of the questions (rounded up) come as native video, the others as ``question_frames`` tagged frames.
    Rows are written to ``output_dir/{environment}.jsonl``.
    """
    clips = max(1, -(-per_environment // 2))
    native = synthesize(
        output_dir / "native", seed=seed, scenes=clips, montages=clips, size=size, seconds=seconds, real=real
    )
    rules = TrackRules(num_frames=num_frames, max_objects=2)
    files = {}
    for name in environments:
        task = ENVIRONMENTS[name]
        if task is None:
            rows = _questions(native, output_dir, per_environment, question_frames, seed)
        else:
            rows = _tracks(native, output_dir, task, rules, seed)
        files[name] = output_dir / f"{name}.jsonl"
        write_text(files[name], "".join(dump_line(row) for row in itertools.islice(rows, per_environment)))
    return DemoRows(media_root=output_dir, files=files)


def _tracks(
    native: SyntheticSet, output: Path, task: Task, rules: TrackRules, seed: int
) -> Iterator[dict[str, Any]]:
    source = track_source(native.root, task, rules=rules, seed=seed, rows_per_video=4)
    items = sorted(source.items(), key=lambda item: int(item["variant"]))
    for item in items:
        for outcome in source.prepare(item, output):
            if outcome.row is not None:
                yield outcome.row


def _questions(
    native: SyntheticSet, output: Path, count: int, question_frames: int, seed: int
) -> Iterator[dict[str, Any]]:
    video = question_source(native.root, transport="video", num_frames=question_frames, seed=seed)
    frames = replace(video, transport="frames")
    for number, item in enumerate(_balanced(list(video.items()), count)):
        chosen = video if number % 2 == 0 else frames
        for outcome in chosen.prepare(item, output):
            if outcome.row is not None:
                yield outcome.row


def _balanced(items: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """Up to ``count`` questions: letters equally often, then kinds, then videos, as far as there are enough."""
    used: Counter[tuple[str, Any]] = Counter()
    for _ in range(min(count, len(items))):
        item = min(items, key=lambda one: [used[trait] for trait in _traits(one)])
        items.remove(item)
        used.update(_traits(item))
        yield item


def _traits(item: Mapping[str, Any]) -> list[tuple[str, Any]]:
    fields = item["record"]["reward_model"]["ground_truth"][item["place"]]
    question = read_question(fields["question"])
    kind = None if question is None else question.kind
    return [("letter", fields["answer"]), ("kind", kind), ("video", item["line"])]


def multi_turn_demo_rows(made: DemoRows, *, per_environment: int) -> DemoRows:
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
    files = {name: made.media_root / f"{name}.jsonl" for name in MULTI_TURN}
    for name, file in files.items():
        write_text(file, "".join(dump_line(row) for row in rows[name]))
    return DemoRows(media_root=made.media_root, files=files)


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _mode(row: Mapping[str, Any]) -> str:
    return media_mode(group_media(iter_media_parts(row["responses_create_params"]["input"])))
