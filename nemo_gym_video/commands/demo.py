# SPDX-License-Identifier: Apache-2.0
"""``gym-video demo``: prepare rows from rendered and real clips, then roll them out in every environment."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from nemo_gym_video.commands.rollout import run_rows
from nemo_gym_video.commands.shared_options import Concurrency, NumRepeats

MEDIA_FOLDER = "rows"


def demo(
    output: Annotated[Path, typer.Option(help="Folder for rows, rollouts, metrics and logs.")] = Path(
        "outputs/demo"
    ),
    rows: Annotated[int, typer.Option(min=1, help="Rows for each environment.")] = 6,
    num_repeats: NumRepeats = 1,
    concurrency: Concurrency = 8,
    seed: Annotated[int, typer.Option(help="Seed of the rendered clips.")] = 7,
) -> None:
    """Roll out every environment on freshly prepared media with the embedded baseline policy."""
    print("preparing clips, questions and tracking rows", file=sys.stderr)
    file, environments = prepare_rows(output, rows=rows, seed=seed)
    code = run_rows(environments, file, output, num_repeats=num_repeats, concurrency=concurrency)
    if code == 0:
        print(f"rollouts, metrics and logs are in {output}", file=sys.stderr)
    raise typer.Exit(code)


def prepare_rows(output: Path, *, rows: int, seed: int) -> tuple[Path, list[str]]:
    """Write one file of rows for all environments, in the environments' order; media stand beside it."""
    from nemo_gym_video.prepare.synthetic.demo_rows import (  # start-up: --help needs no PyAV
        demo_rows,
        multi_turn_demo_rows,
    )

    folder = output / MEDIA_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    # Twice as many: only every other question is about a native video, which a multi-turn row needs.
    made = demo_rows(folder, seed=seed, per_environment=2 * rows)
    files = {**made.files, **multi_turn_demo_rows(made, per_environment=rows).files}
    target = folder / "rows.jsonl"
    taken = [line for file in files.values() for line in file.read_text("utf-8").splitlines(keepends=True)[:rows]]
    target.write_text("".join(taken), "utf-8")
    return target, list(files)
