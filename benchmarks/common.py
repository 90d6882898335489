# SPDX-License-Identifier: Apache-2.0
"""What every benchmark shares: two things timed in turn in one run, and the ratio between them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours against a reference, seconds per repetition (median), and the speed-up that is claimed at least."""

    name: str
    ours: str
    reference: str
    ours_seconds: float
    reference_seconds: float
    claim: float | None = None

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.reference_seconds / self.ours_seconds

    @property
    def holds(self) -> bool:
        """Whether the claimed ratio was reached in this run."""
        return self.claim is None or self.ratio >= self.claim


def compare(
    name: str,
    *,
    ours: tuple[str, Callable[[], object]],
    reference: tuple[str, Callable[[], object]],
    repeats: int = 5,
    claim: float | None = None,
) -> Comparison:
    """Run both in turn (A B A B …) after one warm-up each, so that a drifting machine affects both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_number in range(repeats + 1):
        for side, (_, action) in zip(times, (ours, reference), strict=True):
            start = time.perf_counter()
            action()
            elapsed = time.perf_counter() - start
            if round_number:
                side.append(elapsed)
    return Comparison(
        name=name,
        ours=ours[0],
        reference=reference[0],
        ours_seconds=statistics.median(times[0]),
        reference_seconds=statistics.median(times[1]),
        claim=claim,
    )
