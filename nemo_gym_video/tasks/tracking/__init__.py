# SPDX-License-Identifier: Apache-2.0
"""Tracking rows, answers and scores: schema, run-length masks, rules, metrics."""

from __future__ import annotations

from nemo_gym_video.tasks.tracking.entries import Rules
from nemo_gym_video.tasks.tracking.masks import RleMask, encode
from nemo_gym_video.tasks.tracking.metrics import TapVid, tap_vid
from nemo_gym_video.tasks.tracking.schema import Task, answer_schema, answer_validator
from nemo_gym_video.tasks.tracking.scoring import score_tracks
from nemo_gym_video.tasks.tracking.track_result import Cell, ObjectScore, TrackResult
from nemo_gym_video.tasks.tracking.track_row import TrackObject, TrackRow, TrackTarget, check_track_row

__all__ = [
    "Cell",
    "ObjectScore",
    "RleMask",
    "Rules",
    "TapVid",
    "Task",
    "TrackObject",
    "TrackResult",
    "TrackRow",
    "TrackTarget",
    "answer_schema",
    "answer_validator",
    "check_track_row",
    "encode",
    "score_tracks",
    "tap_vid",
]
