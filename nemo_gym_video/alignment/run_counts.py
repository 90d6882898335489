# SPDX-License-Identifier: Apache-2.0
"""How many runs a video takes with a processor, where only its frame count is known."""

from __future__ import annotations

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.regions import CountRequest, MediaSize

_NOMINAL = (640, 480)  # the number of runs of a video does not depend on its size, only their lengths do


def video_runs(settings: ProcessorSettings | None, frames: int | None) -> int | None:
    """Number of runs that a video of ``frames`` sampled frames takes with a processor; None when unknown.

    With an unknown frame count the answer is a number only where all videos take the same.
    """
    if settings is None:
        return None
    tries = (2, 64) if frames is None else (frames,)
    numbers = {_run_count(settings, MediaSize("video", *_NOMINAL, frames=count)) for count in tries}
    return numbers.pop() if len(numbers) == 1 else None


def _run_count(settings: ProcessorSettings, size: MediaSize) -> int | None:
    try:
        (item,) = settings.count_items(CountRequest(items=(size,)))
    except NemoGymVideoError:
        return None
    return len(item.run_lengths) or None
