# SPDX-License-Identifier: Apache-2.0
"""What the score of a tracking answer carries."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.task import BAD_ROW
from nemo_gym_video.tasks.tracking.entries import AnswerReason
from nemo_gym_video.tasks.tracking.metrics import TapVid

Claim = Literal["visible", "absent", "missing"]
TrackReason = AnswerReason | Literal["scored", "bad_row"]

_SENTENCES: dict[str, str] = {
    "thinking_unclosed": "The model was cut off while thinking",
    "empty": "The answer is empty",
    "too_long": "The answer is longer than allowed",
    "no_envelope": "The answer has no <answer>…</answer>",
    "not_json": "The envelope holds no valid JSON",
    "too_deep": "The JSON is nested too deep",
    "number_too_long": "The JSON holds a number of too many digits",
    "too_many_entries": "The answer has too many entries",
    "duplicate_key": "A JSON object repeats a key",
    "not_finite": "The JSON holds NaN, Infinity or a number too large for a double",
    "no_tracks": "The JSON is no object with a list of tracks",
    "entry_no_object": "An entry is no JSON object",
    "bad_id": "An entry's object number is no integer",
    "bad_frame": "An entry's frame is no integer",
    "bad_visible": "An entry's visible is no boolean",
    "absent_with_location": "An entry says visible: false and gives a location",
    "bad_location": "An entry's location is missing or no list of as many numbers as the task needs",
    "out_of_range": "An entry's location lies outside 0 to 1000",
    "box_turned_round": "An entry's box does not have x1 < x2 and y1 < y2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One object on one target frame: what was expected, answered and earned.

    ``answers`` counts the entries for the cell; ``answered`` and ``location`` are those of the one that counts.
    For a ref object with an assigned id an omitted cell is ``absent`` with ``answers`` 0.
    """

    object_id: int
    frame: int
    expected: Claim
    answered: Claim
    location: tuple[float, ...] | None
    earned: float
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectScore:
    """One object's mean over its cells. ``predicted_id`` is the id assigned to it (ref), as text when huge."""

    object_id: int
    mean: float
    predicted_id: int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackResult:
    """The score of one tracking answer.

    ``reward`` is 0 to 1, the mean of the objects' means times T / (T + ``extras``), T all target cells;
    ``missing`` counts cells without an entry. ``in_mask_rate`` (pt, ref) and ``mean_iou`` (box) are over the
    cells where the object is visible, ``visibility_accuracy`` over all; what was not answered is wrong there.
    ``reward_components`` are ``localization`` and ``absence`` and sum to ``reward``. ``mask_sample`` says that
    the row was no measurement, with ``failure_kind`` and ``failure_reason``.
    """

    reward: float
    reason: TrackReason
    format_ok: bool = False
    object_scores: tuple[ObjectScore, ...] = ()
    cells: tuple[Cell, ...] = ()
    missing: int = 0
    extras: int = 0
    localization: float = 0.0
    absence: float = 0.0
    in_mask_rate: float | None = None
    mean_iou: float | None = None
    visibility_accuracy: float | None = None
    tap_vid: TapVid | None = None
    mask_sample: bool = False
    failure_kind: str | None = None
    failure_reason: str | None = None

    @property
    def reward_components(self) -> dict[str, float]:
        """What visible and absent cells contributed to the reward."""
        return {"localization": self.localization, "absence": self.absence}

    def explain(self) -> str:
        """One sentence for a person."""
        if self.failure_reason is not None:
            return f"Not a measurement: {self.failure_reason}."
        if self.reason != "scored":
            return f"{_SENTENCES[self.reason]}, so the whole answer counts for nothing."
        earned = sum(cell.earned for cell in self.cells)
        text = f"{earned:.4g} of {len(self.cells)} cells earned"
        if self.missing:
            text += f", {self.missing} not answered"
        if self.extras:
            factor = len(self.cells) / (len(self.cells) + self.extras)
            text += f", {self.extras} entries too many (times {factor:.3g})"
        return f"{text}: reward {self.reward:.4g}."

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {
            "reward": self.reward,
            "reason": self.reason,
            "mask_sample": self.mask_sample,
            "failure_kind": self.failure_kind,
            "failure_reason": self.failure_reason,
            "format_ok": self.format_ok,
            "reward_components": self.reward_components,
            "missing": self.missing,
            "extras": self.extras,
            "in_mask_rate": self.in_mask_rate,
            "mean_iou": self.mean_iou,
            "visibility_accuracy": self.visibility_accuracy,
            "tap_vid": None if self.tap_vid is None else asdict(self.tap_vid),
            # Not "objects": that is the row's own field, which a result must carry unchanged to be scored again.
            "object_scores": [asdict(item) for item in self.object_scores],
            "cells": [asdict(cell) for cell in self.cells],
            "explanation": self.explain(),
        }


def bad_track_row(error: RowError) -> TrackResult:
    """The result of whatever was answered to a malformed row."""
    return TrackResult(
        reward=0.0, reason="bad_row", mask_sample=True, failure_kind=BAD_ROW, failure_reason=str(error)
    )
