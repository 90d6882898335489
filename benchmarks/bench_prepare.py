# SPDX-License-Identifier: Apache-2.0
"""Preparing SA-V rows: two worker processes against one, and two Ray actors against one process.

Every worker keeps to one core. Ray's time counts from its first result, the others' from the start of the command.
All must write the same bytes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.common import Comparison
from nemo_gym_video.prepare.job import JobSettings, run_job
from nemo_gym_video.prepare.sav.sav_source import SavSource
from nemo_gym_video.prepare.synthetic.clips import synthesize

VIDEOS = 24
ROWS_PER_VIDEO = 8


def timed(source: SavSource, output: Path, settings: JobSettings) -> tuple[float, float, bytes]:
    """Seconds of the whole job, seconds an input after the first result, and the rows."""
    marks: list[tuple[float, int]] = []
    start = time.perf_counter()
    run_job(source, output, settings, progress=lambda done, _: marks.append((time.perf_counter(), done)))
    whole = time.perf_counter() - start
    (first, done), (last, total) = next(mark for mark in marks if mark[1]), marks[-1]
    return whole, (last - first) / (total - done), (output / "train.jsonl").read_bytes()


def run() -> list[Comparison]:
    """Time one worker, two workers and two Ray actors on the same videos."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        native = synthesize(folder / "native", scenes=VIDEOS, montages=0, size=(640, 360), seconds=6.0, real=False)
        source = SavSource(root=native.sav_root, task="pt", rows_per_video=ROWS_PER_VIDEO)
        one = timed(source, folder / "one", JobSettings(workers=1))
        two = timed(source, folder / "two", JobSettings(workers=2))
        ray = timed(source, folder / "ray", JobSettings(workers=2, ray="local"))
        assert one[2] == two[2] == ray[2], "workers changed the rows"
    inputs = f"{VIDEOS * ROWS_PER_VIDEO} SA-V rows"
    return [
        Comparison(
            name=f"prepare {inputs}",
            ours="two workers",
            reference="one worker",
            ours_seconds=two[0],
            reference_seconds=one[0],
            claim=1.7,
        ),
        Comparison(
            name=f"prepare {inputs} on Ray, an input after start-up",
            ours="two actors",
            reference="one worker",
            ours_seconds=ray[1],
            reference_seconds=one[1],
            claim=1.5,
        ),
    ]
