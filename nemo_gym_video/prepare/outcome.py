# SPDX-License-Identifier: Apache-2.0
"""What becomes of one input of a preparation job: a row, a skip with a named reason, or an error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from nemo_gym_video.errors import PreparationError, Where

OutcomeKind = Literal["row", "skip", "error"]

REASONS: dict[str, tuple[OutcomeKind, str]] = {
    "missing": ("error", "a file that the input names does not exist"),
    "unreadable": ("error", "a file exists and cannot be read or decoded"),
    "refused": ("error", "the media path is not one that may be opened"),
    "no_video_stream": ("error", "the file holds no video"),
    "no_frames": ("error", "the video holds no frame that can be decoded"),
    "too_large": ("error", "over a limit on bytes, pixels, frames or duration"),
    "malformed": ("error", "the input does not have the published form"),
    "bad_answer": ("error", "the answer is missing or names no option"),
    "option_mismatch": ("error", "options are missing, ambiguous, repeated or labelled out of order"),
    "size_mismatch": ("error", "masks and video differ in size"),
    "count_mismatch": ("error", "annotation and video differ in their number of frames"),
    "bad_mask": ("error", "a mask's run lengths do not fill its frame, or cannot be read"),
    "placeholder_text": ("error", "the text holds a literal media placeholder"),
    "contract": ("error", "the processor cannot take the row's media"),
    "too_short": ("skip", "fewer annotated or sampled frames than a row needs"),
    "empty_mask": ("skip", "the object shows in no frame of the window, or in too few"),
    "unreachable_mask": ("skip", "a mask holds no reachable grid point"),
    "thin_mask": ("skip", "no frame shows the object thick enough for a reference"),
    "late_only": ("skip", "no object is there in the window's first frame"),
    "no_object": ("skip", "the annotation has no object"),
    "no_expression": ("skip", "no words refer to any object"),
    "no_question": ("skip", "the caption row holds no question"),
    "duplicate_prompt": ("skip", "the same prompt on the same video content came before"),
    "blind": ("skip", "a policy that does not look gets the full reward"),
}
"""Every reason by name: whether it is a skip or an error, and what it means."""


class Refusal(PreparationError):
    """One input cannot become a row; ``reason`` is a key of ``REASONS``."""

    code = "prepare.input"

    def __init__(
        self,
        reason: str,
        problem: str,
        *,
        got: object = None,
        allowed: str | None = None,
        where: Where | None = None,
    ) -> None:
        """``reason`` must be known; the rest is as for every error of the package."""
        if reason not in REASONS:
            raise KeyError(reason)
        self.reason = reason
        super().__init__(problem, got=got, allowed=allowed, where=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One input's end.

    ``input_id`` names the input for a person (``rows.jsonl:3 question 1``). A row has ``row``, the ``group`` that
    splits go by (the video's content digest), and ``manifests`` of the frames it uses, relative to the media root.
    A skip or an error has ``reason`` and ``message``. ``notes`` counts what was left out inside a row.
    """

    kind: OutcomeKind
    input_id: str
    row: dict[str, Any] | None = None
    group: str | None = None
    manifests: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None
    notes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def refused(cls, input_id: str, refusal: Refusal) -> Outcome:
        """The outcome of a refusal."""
        kind = REASONS[refusal.reason][0]
        return cls(kind=kind, input_id=input_id, reason=refusal.reason, message=str(refusal))

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the fields that are empty."""
        names = ("kind", "input_id", "row", "group", "manifests", "reason", "message", "notes")
        pairs = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in pairs if value not in (None, (), {})}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Outcome:
        """Read ``to_json`` back."""
        values = dict(obj)
        values["manifests"] = tuple(values.get("manifests", ()))
        return cls(**values)


@dataclass(slots=True)
class Totals:
    """Counts of a job: inputs are rows plus skips plus errors."""

    inputs: int = 0
    rows: int = 0
    skips: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self.inputs += 1
        self.notes.update(outcome.notes)
        if outcome.kind == "row":
            self.rows += 1
        else:
            (self.skips if outcome.kind == "skip" else self.errors)[outcome.reason or ""] += 1

    def to_json(self) -> dict[str, Any]:
        """Counts by name, in the order of ``REASONS``."""
        return {
            "inputs": self.inputs,
            "rows": self.rows,
            "skips": {name: self.skips[name] for name in REASONS if self.skips[name]},
            "errors": {name: self.errors[name] for name in REASONS if self.errors[name]},
            "left_out_objects": {name: self.notes[name] for name in REASONS if self.notes[name]},
        }
