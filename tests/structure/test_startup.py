# SPDX-License-Identifier: Apache-2.0
"""Start-up times, measured as in ``python -m benchmarks startup``."""

from __future__ import annotations

import pytest

from benchmarks.bench_startup import CASES, seconds


@pytest.mark.parametrize(("code", "limit"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_start_up_is_within_its_limit(code: str, limit: float) -> None:
    # The fastest, not the median: other work on the machine makes a start slower and never faster.
    assert min(seconds(code)) < limit


def test_a_slow_start_is_measured() -> None:
    assert min(seconds("import time; time.sleep(0.1)", rounds=1)) > 0.1
