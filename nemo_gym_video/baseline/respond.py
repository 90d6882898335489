# SPDX-License-Identifier: Apache-2.0
"""Chooses the policy for a conversation by the wording of its prompt."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nemo_gym_video.baseline import choose, explore, tracks
from nemo_gym_video.baseline.seen import SeenMessage

_POLICIES = (
    (tracks.matches, tracks.respond),
    (explore.matches, explore.respond),
    (choose.matches, choose.respond),
)


def respond(messages: Sequence[SeenMessage], *, rng: random.Random | None, temperature: float) -> str:
    """The text of the next assistant turn. ``rng`` None is deterministic, else the answer is jittered slightly."""
    for matches, answer in _POLICIES:
        if matches(messages):
            return answer(messages, rng=rng, temperature=temperature)
    return "This is a classical-vision baseline. It tracks objects and answers boxed questions about a video."
