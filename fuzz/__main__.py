# SPDX-License-Identifier: Apache-2.0
"""``python -m fuzz``: a random campaign, a coverage-guided one where atheris is installed, and growth by size."""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz import campaign, scaling

SLOWEST_MS = 100


def main() -> int:
    """Run what the arguments ask for; 1 when anything failed."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="time for each of the two campaigns")
    parser.add_argument("--answers", type=int, default=1_000_000, help="stop the random campaign after as many")
    parser.add_argument("--rows", type=int, default=10_000, help="and as many")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", choices=("random", "coverage", "scaling"), default=None)
    given = parser.parse_args()
    failed = 0
    if given.only in (None, "random"):
        seed = random.randrange(1 << 32) if given.seed is None else given.seed
        tally = campaign.run(seed=seed, answers=given.answers, rows=given.rows, seconds=given.seconds)
        print(tally.report())
        for failure in tally.failures[:5]:
            print(failure, file=sys.stderr)
        failed += bool(tally.failures)
    if given.only in (None, "coverage"):
        failed += _coverage(int(given.seconds))
    if given.only in (None, "scaling"):
        found = scaling.run()
        print(scaling.report(found))
        failed += found[0].milliseconds[-1] > SLOWEST_MS
    return int(failed > 0)


def _coverage(seconds: int) -> int:
    """Run the atheris target for ``seconds``; 1 when it found something."""
    if importlib.util.find_spec("atheris") is None:
        print("coverage-guided: skipped, atheris is not installed")
        return 0
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as corpus:
        command = [sys.executable, "-m", "fuzz.coverage", f"-max_total_time={seconds}", "-max_len=4096",
                   "-timeout=5", "-rss_limit_mb=2048", f"-artifact_prefix={corpus}/", corpus]  # fmt: skip
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, errors="replace", check=False)
    lines = done.stderr.splitlines()
    runs = [line for line in lines if re.match(r"(#\d+|Done)", line)]
    print(f"coverage-guided: {runs[-1].strip() if runs else 'nothing ran'}")
    if done.returncode:
        print("\n".join([*done.stdout.splitlines(), *lines][-40:]), file=sys.stderr)
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
