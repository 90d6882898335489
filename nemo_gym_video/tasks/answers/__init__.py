# SPDX-License-Identifier: Apache-2.0
"""From model text to a typed answer: visible text, boxed letters, the answer envelope, strict JSON."""

from __future__ import annotations

from nemo_gym_video.tasks.answers.envelope import last_envelope
from nemo_gym_video.tasks.answers.strict_json import JsonRefused, read_json
from nemo_gym_video.tasks.answers.visible import VisibleText, visible_text
from nemo_gym_video.tasks.boxed.boxed_answer import BoxedResult, score_boxed, score_boxed_row
from nemo_gym_video.tasks.boxed.options import BoxedRow, boxed_row

__all__ = [
    "BoxedResult",
    "BoxedRow",
    "JsonRefused",
    "VisibleText",
    "boxed_row",
    "last_envelope",
    "read_json",
    "score_boxed",
    "score_boxed_row",
    "visible_text",
]
