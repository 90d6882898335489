# SPDX-License-Identifier: Apache-2.0
"""The coverage-guided target: atheris turns bytes into texts, every scorer reads them.

Started by ``python -m fuzz``, in a process of its own because libFuzzer ends the process it runs in.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from fuzz.campaign import check
from fuzz.generate import FRAGMENTS, boxed_row, track_row


def main() -> None:
    """Fuzz; arguments are libFuzzer's."""
    import atheris  # extra: fuzz

    with atheris.instrument_imports(include=["nemo_gym_video.tasks.answers", "nemo_gym_video.tasks.tracking"]):
        from nemo_gym_video.tasks.boxed.boxed_answer import (
            score_boxed_row,  # extra: fuzz instruments what is imported here
        )
        from nemo_gym_video.tasks.tracking import (  # extra: fuzz instruments what is imported here
            TrackRow,
            score_tracks,
        )

    rng = random.Random(0)
    rows = [TrackRow.from_row(track_row(rng)) for _ in range(8)]
    question = boxed_row(rng)

    def one(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        kind = provider.ConsumeIntInRange(0, 3)
        row = rows[provider.ConsumeIntInRange(0, len(rows) - 1)]
        if kind == 0:
            _row(provider, score_tracks, score_boxed_row)
            return
        if kind == 1:
            text = provider.ConsumeUnicode(4096)
        else:
            picks = [provider.ConsumeIntInRange(0, len(FRAGMENTS) - 1) for _ in range(provider.remaining_bytes())]
            text = "".join(FRAGMENTS[pick] for pick in picks)
            text = f"<answer>{text}</answer>" if kind == 3 else text
        for result in (score_tracks(text, row), score_tracks(text, row, rules="baseline"),
                       score_boxed_row(text, question)):  # fmt: skip
            check(result)
            assert not result.mask_sample

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


def _row(provider: Any, score_tracks: Any, score_boxed_row: Any) -> None:
    try:
        row = json.loads(provider.ConsumeUnicode(4096))
    except (ValueError, RecursionError):
        row = {"task": "pt", "objects": [{"id": 1, "targets": [{"frame": 1, "visible": True, "mask": {
            "size": [provider.ConsumeIntInRange(-1, 99), provider.ConsumeIntInRange(-1, 99)],
            "counts": provider.ConsumeBytes(64)}}]}]}  # fmt: skip
    check(score_tracks("<answer>{}</answer>", row))
    check(score_boxed_row("\\boxed{A}", row))


if __name__ == "__main__":
    main()
