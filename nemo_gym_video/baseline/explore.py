# SPDX-License-Identifier: Apache-2.0
"""The policy for a clip that is too long to show: ask for the part where the evidence lies, then answer.

At least one clip is asked for, at most three; each is narrower than the last, around what the frames so far say.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from nemo_gym_video.baseline import choose
from nemo_gym_video.baseline.seen import SeenMessage, text_of
from nemo_gym_video.prepare.mcqa_prompt import read_options
from nemo_gym_video.prepare.synthetic.questions import read_question

_MAX_CLIPS = 3
_CLIP_FRAMES = 24
_FINE_ENOUGH_S = 0.25
_MARGIN_S = 0.3
_FIRST_TIME = re.compile(r"\bat (\d{1,6}\.\d\d)\b")
_FRAME_LIMIT = re.compile(r"\bat most (\d{1,6})\b")


def matches(messages: Sequence[SeenMessage]) -> bool:
    """Whether the prompt documents requests for parts of the video."""
    text = text_of(messages)
    return "<request>" in text and "\\boxed" in text


def respond(messages: Sequence[SeenMessage], *, rng: random.Random | None, temperature: float) -> str:
    """A clip request, or the final boxed letter."""
    asked = sum(message.role == "assistant" for message in messages)
    span = _wanted_span(messages)
    out_of_turns = "Answer now" in messages[-1].text
    fine = span[1] - span[0] <= _FINE_ENOUGH_S
    if out_of_turns or asked >= _MAX_CLIPS or (asked > 0 and fine):
        return choose.respond(messages, rng=rng, temperature=temperature)
    start = max(span[0] - _MARGIN_S, _first_time(messages))
    end = max(span[1], start) + _MARGIN_S
    fps = min(24.0, (_frames_allowed(messages) - 1) / (end - start))
    clip = {"start": round(start, 2), "end": round(end, 2), "fps": round(fps, 2)}
    return f"<request>{json.dumps({'clip': clip})}</request>"


def _wanted_span(messages: Sequence[SeenMessage]) -> tuple[float, float]:
    """Where the evidence lies as far as the frames so far tell; the first seconds when they tell nothing."""
    text = text_of(messages)
    question = read_question(text)
    options = [option for _, option in read_options(text)]
    choice = choose.choose(messages, question, options) if question else None
    return (0.0, 2.0) if choice is None else choice.span


def _first_time(messages: Sequence[SeenMessage]) -> float:
    """The first time that the environment has named, which is when the video starts."""
    found = _FIRST_TIME.search(text_of(messages))
    return float(found[1]) if found else 0.0


def _frames_allowed(messages: Sequence[SeenMessage]) -> int:
    """Frames to ask for: few enough for what a refusal has said."""
    limits = [int(limit) for limit in _FRAME_LIMIT.findall(text_of(messages))]
    return max(2, min([_CLIP_FRAMES, *limits]))
