# SPDX-License-Identifier: Apache-2.0
"""Tracking rows, answers and scores: schema, run-length masks, rules, metrics."""

from __future__ import annotations

from nemo_gym_video.tracking.answer import Rules
from nemo_gym_video.tracking.masks import RleMask, encode
from nemo_gym_video.tracking.metrics import TapVid, tap_vid
from nemo_gym_video.tracking.result import Cell, ObjectScore, TrackResult
from nemo_gym_video.tracking.rows import Target, TrackObject, TrackRow, check_track_row
from nemo_gym_video.tracking.schema import Task, answer_schema, answer_validator
from nemo_gym_video.tracking.scoring import score_tracks

__all__ = [
    "Cell",
    "ObjectScore",
    "RleMask",
    "Rules",
    "TapVid",
    "Target",
    "Task",
    "TrackObject",
    "TrackResult",
    "TrackRow",
    "answer_schema",
    "answer_validator",
    "check_track_row",
    "encode",
    "score_tracks",
    "tap_vid",
]
