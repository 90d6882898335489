# SPDX-License-Identifier: Apache-2.0
"""How the time to score one answer grows with its size, for every shape."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from fuzz.generate import track_row
from fuzz.shapes import SHAPES
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.boxed.options import boxed_row
from nemo_gym_video.tasks.tracking import TrackRow, score_tracks

SIZES = tuple(1 << exponent for exponent in range(16, 21))  # 64 KiB to 1 MiB
ALLOWED = 2 * 1.15

Scorer = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Growth:
    """CPU milliseconds of one scorer on one shape, a value a size of ``SIZES``."""

    shape: str
    scorer: str
    milliseconds: tuple[float, ...]

    @property
    def growth(self) -> float:
        """The factor a doubling, on average over all sizes."""
        first, last = max(self.milliseconds[0], 0.01), self.milliseconds[-1]
        return float((last / first) ** (1 / (len(self.milliseconds) - 1)))


def scorers() -> dict[str, Scorer]:
    """Every scorer with a row of its own: both rule sets, every task, both grading modes."""
    found: dict[str, Scorer] = {}
    rng = random.Random(4)
    rows: dict[str, TrackRow] = {}
    while len(rows) < 3:
        made = track_row(rng)
        if len(made["objects"]) == 3:
            rows.setdefault(made["task"], TrackRow.from_row(made))
    for task, row in rows.items():
        found[f"{task} strict"] = lambda text, row=row: score_tracks(text, row)  # type: ignore[misc]
        found[f"{task} baseline"] = lambda text, row=row: score_tracks(text, row, rules="baseline")  # type: ignore[misc]
    question = boxed_row({"options": [{"A": "x"}, {"B": "\ufdfa" * 2000}, {"C": "A"}], "expected_answer": "B"})
    found["boxed strict"] = lambda text: score_boxed_row(text, question)
    found["boxed lenient"] = lambda text: score_boxed_row(text, question, grading_mode="lenient_boxed")
    return found


def measure(shape: str, scorer: str, score: Scorer, *, repeats: int = 5) -> Growth:
    """Best of ``repeats`` at each size, in CPU time, so that other processes do not count."""
    times: list[float] = []
    for size in SIZES:
        text = SHAPES[shape](size)
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            score(text)
            best = min(best, time.process_time() - start)
        times.append(best * 1000)
    return Growth(shape, scorer, tuple(times))


def run(*, repeats: int = 5) -> list[Growth]:
    """All shapes with all scorers, slowest first."""
    found = [measure(shape, name, score, repeats=repeats) for shape in SHAPES for name, score in scorers().items()]
    return sorted(found, key=lambda growth: -growth.milliseconds[-1])


def report(found: list[Growth]) -> str:
    """A table of the slowest, and of everything whose time more than doubles with the size."""
    lines = [f"{'shape':36} {'scorer':14} " + " ".join(f"{size >> 10:>6}K" for size in SIZES) + "  growth"]
    over = [growth for growth in found if growth.growth > ALLOWED]
    for growth in [*found[:12], *(item for item in over if item not in found[:12])]:
        times = " ".join(f"{value:7.2f}" for value in growth.milliseconds)
        mark = " *" if growth in over else ""
        lines.append(f"{growth.shape:36} {growth.scorer:14} {times} {growth.growth:7.2f}{mark}")
    slowest = f"slowest {found[0].milliseconds[-1]:.1f} ms at 1 MiB"
    lines.append(f"{len(found)} pairs; {slowest}; {len(over)} more than doubled (*)")
    return "\n".join(lines)
