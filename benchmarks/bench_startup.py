# SPDX-License-Identifier: Apache-2.0
"""How long a person waits before anything happens: ``gym-video --help`` and ``import nemo_gym_video``.

The limits are seconds on any machine this is used on, so they stand here as the reference: 0.4 s and 60 ms.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.common import Comparison

ROUNDS = 9
LISTING = "import sys; sys.argv = ['gym-video', '--help']; from nemo_gym_video.cli import main; main()"
CASES = (
    ("start-up: gym-video --help", LISTING, 0.4),
    ("start-up: import nemo_gym_video", "import nemo_gym_video", 0.06),
)


def seconds(code: str, *, rounds: int = ROUNDS) -> list[float]:
    """Wall times of ``python -c code``, the interpreter's own start included, after one to warm up."""
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return taken[1:]


def run() -> list[Comparison]:
    """Each case against its limit: a ratio below 1 is a limit that was missed."""
    return [
        Comparison(
            name=name,
            ours=f"median of {ROUNDS}",
            reference="the limit",
            ours_seconds=statistics.median(seconds(code)),
            reference_seconds=limit,
            claim=1.0,
        )
        for name, code, limit in CASES
    ]
