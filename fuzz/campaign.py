# SPDX-License-Identifier: Apache-2.0
"""The random campaign: scores many answers and rows, and checks what must hold for each of them."""

from __future__ import annotations

import json
import random
import resource
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from fuzz.generate import answer, boxed_row, spoiled_row, track_row
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.boxed.options import boxed_row as read_boxed_row
from nemo_gym_video.tasks.tracking import TrackResult, TrackRow, score_tracks

_ANSWERS_A_ROW = 50
_CHECK_EVERY = 7  # answers; every row is checked
_FIRST = {"task": "ref", "objects": [{"id": 1, "targets": [{"frame": 1, "visible": False}]}]}


@dataclass(slots=True)
class Tally:
    """What a campaign did. Times are CPU milliseconds of one scoring; ``failures`` hold seed and traceback."""

    seed: int
    answers: int = 0
    rows: int = 0
    masked_rows: int = 0
    rewarded: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest: str = ""
    failures: list[str] = field(default_factory=list)

    def report(self) -> str:
        """The summary a person reads."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return (
            f"seed {self.seed}: {self.answers} answers ({self.rewarded} with a reward), {self.rows} rows "
            f"({self.masked_rows} refused) in {self.seconds:.0f} s\n"
            f"exceptions or broken promises: {len(self.failures)}\n"
            f"slowest scoring: {self.slowest_ms:.1f} ms CPU ({self.slowest})\n"
            f"peak memory: {peak:.0f} MiB"
        )


def run(*, seed: int, answers: int, rows: int, seconds: float) -> Tally:
    """Go on until both counts are reached or the time is up, whichever is first."""
    tally = Tally(seed)
    score_tracks('<answer>{"tracks": [{"id": 1, "frame": 1, "visible": false}]}</answer>', _FIRST)  # imports scipy
    rng = random.Random(seed)
    start = time.monotonic()
    while (tally.answers < answers or tally.rows < rows) and time.monotonic() - start < seconds:
        if tally.rows < rows and tally.rows * answers <= tally.answers * rows:
            _one_row(rng, tally)
            continue
        track, question = TrackRow.from_row(track_row(rng)), read_boxed_row(boxed_row(rng))
        for _ in range(_ANSWERS_A_ROW):
            _one_answer(answer(rng), track, question, tally)
    tally.seconds = time.monotonic() - start
    return tally


def _one_answer(text: str, track: TrackRow, question: Any, tally: Tally) -> None:
    tally.answers += 1
    try:
        results = [
            _timed(tally, text, lambda: score_tracks(text, track)),
            _timed(tally, text, lambda: score_tracks(text, track, rules="baseline")),
            _timed(tally, text, lambda: score_boxed_row(text, question)),
        ]
        for result in results:
            assert not result.mask_sample
            assert 0 <= result.reward <= 1
            if tally.answers % _CHECK_EVERY == 0:
                check(result)
        tally.rewarded += any(result.reward > 0 for result in results)
    except Exception:
        tally.failures.append(f"{text[:500]!r}\n{traceback.format_exc()}")


def _one_row(rng: random.Random, tally: Tally) -> None:
    tally.rows += 1
    row = spoiled_row(rng)
    try:
        text = answer(rng)
        tracked = score_tracks(text, row)
        boxed = score_boxed_row(text, row)
        for result in (tracked, score_tracks(text, row, rules="baseline"), boxed):
            check(result)
        tally.masked_rows += tracked.mask_sample and boxed.mask_sample
    except Exception:
        tally.failures.append(f"{row!r}"[:500] + f"\n{traceback.format_exc()}")


def check(result: Any) -> None:
    """What holds for every result."""
    assert 0 <= result.reward <= 1
    assert result.explain()
    body = result.to_json()
    json.dumps(body, allow_nan=False)
    assert abs(sum(body["reward_components"].values()) - result.reward) < 1e-9
    assert result.mask_sample == (result.reason == "bad_row") == (result.failure_kind is not None)
    if isinstance(result, TrackResult) and result.reason == "scored":
        expected = sum(item.mean for item in result.object_scores) / len(result.object_scores)
        expected *= len(result.cells) / (len(result.cells) + result.extras)
        assert abs(expected - result.reward) < 1e-9


def _timed(tally: Tally, text: str, work: Any) -> Any:
    start = time.thread_time()
    result = work()
    spent = (time.thread_time() - start) * 1000
    if spent > tally.slowest_ms:
        tally.slowest_ms, tally.slowest = spent, f"{len(text)} characters, {text[:40]!r}"
    return result
