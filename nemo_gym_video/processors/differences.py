# SPDX-License-Identifier: Apache-2.0
"""Says how two processor settings differ, and what each difference does to token counts."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.regions import CountRequest, MediaSize, RequestCount

# Requests on which an effect is shown: the ones of everyday use first, then those that reach the bounds.
_PROBES = {
    "64 frames of 1920x1080": CountRequest(items=(MediaSize("video", 1920, 1080, 64),)),
    "an image of 1920x1080": CountRequest(items=(MediaSize("image", 1920, 1080),), max_model_len=32768),
    "16 images of 2400x1080 at 32768": CountRequest(
        items=(MediaSize("image", 2400, 1080),) * 16, max_model_len=32768
    ),
    "16 images of 2400x1080": CountRequest(items=(MediaSize("image", 2400, 1080),) * 16),
    "an image of 224x224": CountRequest(items=(MediaSize("image", 224, 224),), max_model_len=32768),
    "an image of 4000x3000": CountRequest(items=(MediaSize("image", 4000, 3000),), max_model_len=32768),
    "an image of 1536x512": CountRequest(items=(MediaSize("image", 1536, 512),), max_model_len=32768),
    "16 frames of 480x854": CountRequest(items=(MediaSize("video", 480, 854, 16),)),
    "16 frames of 1920x1080": CountRequest(items=(MediaSize("video", 1920, 1080, 16),)),
    "2 frames of 64x64": CountRequest(items=(MediaSize("video", 64, 64, 2),)),
    "768 frames of 1920x1080": CountRequest(items=(MediaSize("video", 1920, 1080, 768),)),
}
_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that differs: its values as JSON, and its effect on counts in words."""

    name: str
    left: str
    right: str
    effect: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.name}: {self.left} -> {self.right}; {self.effect}"


def diff_settings(left: ProcessorSettings, right: ProcessorSettings) -> tuple[Difference, ...]:
    """Every difference from ``left`` to ``right``; an effect is that of the one setting changed alone."""
    if type(left) is not type(right):
        return (Difference("family", left.family, right.family, _effect(left, right)),)
    differences = []
    old, new = left.values(), right.values()
    for name, value in old.items():
        if value == new[name]:
            continue
        changed, alone = _changed(left, right, name)
        effect = _effect(left, changed) + ("" if alone else " (with the other differences)")
        differences.append(Difference(name, json.dumps(value), json.dumps(new[name]), effect))
    return tuple(differences)


def _changed(left: ProcessorSettings, right: ProcessorSettings, name: str) -> tuple[ProcessorSettings, bool]:
    """``left`` with one setting of ``right``, or ``right`` itself where that alone would contradict the rest."""
    try:
        return dataclasses.replace(left, **{name: getattr(right, name)}), True
    except NemoGymVideoError:
        return right, False


def _effect(left: ProcessorSettings, right: ProcessorSettings) -> str:
    effects = []
    for label, request in _PROBES.items():
        before, after = _shown(left, request), _shown(right, request)
        if before != after:
            totals, runs = (" -> ".join(pair) for pair in zip(before, after, strict=True))
            effects.append(f"{label}: {totals} tokens ({runs})")
    if not effects:
        return "no effect on the counts of the reference requests"
    return ", ".join(effects[:_SHOWN])


def _shown(settings: ProcessorSettings, request: CountRequest) -> tuple[str, str]:
    """A total and its runs: ``8064`` and ``32 x 252``."""
    try:
        count = count_request(settings, request)
    except NemoGymVideoError:
        return "refused", "none"
    return str(count.total), _runs(count)


def _runs(count: RequestCount) -> str:
    lengths = [length for item in count.items for length in item.run_lengths]
    return f"{len(lengths)} x {lengths[0]}" if len(set(lengths)) == 1 else f"{len(lengths)} runs"
