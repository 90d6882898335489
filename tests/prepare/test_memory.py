# SPDX-License-Identifier: Apache-2.0
"""Peak memory does not grow with the number of rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nemo_gym_video.prepare.synthetic.encode import write_clip

MEASURE = """
import resource, sys
from pathlib import Path
from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource
from nemo_gym_video.prepare.job import JobSettings, run_job
source = CaprlSource(input=Path(sys.argv[1]), video_roots=(Path(sys.argv[1]).parent,))
report = run_job(source, Path(sys.argv[2]), JobSettings(limit=int(sys.argv[3])))
print(report.totals.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_ten_thousand_rows_take_no_more_memory_than_a_thousand(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", [np.full((32, 48, 3), 9 * n, dtype=np.uint8) for n in range(24)], fps=24)
    with (tmp_path / "rows.jsonl").open("w") as rows:
        for number in range(10_000):
            line = {"question": f"Is it {number}?", "options": ["yes", "no"], "answer": "AB"[number % 2]}
            rows.write(json.dumps({**line, "video": "clip.mp4"}) + "\n")
    peaks = {}
    for count in (1_000, 10_000):
        command = [
            sys.executable,
            "-c",
            MEASURE,
            str(tmp_path / "rows.jsonl"),
            str(tmp_path / str(count)),
            str(count),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(said[0]) == count
        peaks[count] = int(said[1])
    assert peaks[10_000] <= 1.2 * peaks[1_000]
