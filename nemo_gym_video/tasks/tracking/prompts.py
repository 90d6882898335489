# SPDX-License-Identifier: Apache-2.0
"""The wording of tracking prompts: clauses in varied order and wording, chosen by seed, and read back here.

Every prompt says the same things whatever its wording: what to track and from which frame, which frames are asked,
the coordinate grid with both ends named, what to answer where the object cannot be seen, and the answer's form.
``read_track_prompt`` recovers the targets from the text, for policies that have nothing but the prompt.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.tasks.tracking.schema import Task, answer_schema

PROMPT_VERSION = "tracks-1"
"""Recorded in every row; changes whenever any wording below does."""

_FORMS: dict[Task, str] = {
    "pt": '{"point": 1, "frame": 1, "xy": [x, y], "visible": true}',
    "box": '{"box": 1, "frame": 1, "bbox": [x1, y1, x2, y2], "visible": true}',
    "ref": '{"id": 1, "frame": 1, "xy": [x, y], "visible": true}',
}
_NOUNS: dict[Task, str] = {"pt": "point", "box": "box", "ref": "object"}

_VERBS = ("Track", "Follow")
_REF_HEADS = ("Track the following objects:", "Find and follow these objects:", "Follow each of these objects:")
_FRAMES = (
    "The images are frames {first} to {last} of one video, {fps:.3g} frames a second.",
    "You see frames {first} to {last} of a video, taken {fps:.3g} times a second.",
)
_ASKS = (
    "Give every {noun} exactly once for every frame from {start} to {last}{late}.",
    "For each frame from {start} to {last}, answer exactly once for every {noun}{late}.",
)
_LATE = " ({article} {noun} that is given in a later frame: only for the frames after that one)"
_GRIDS = (
    "Coordinates are numbers from 0 to 1000, both included: x runs from the left edge (0) to the right edge "
    "(1000), y from the top edge (0) to the bottom edge (1000), whatever the size of the image.",
    "Use a grid from 0 to 1000 inclusive on both axes, independent of the image size; x counts from the left, "
    "y from the top.",
)
_ABSENT = (
    'Where {article} {noun} is hidden or outside the picture, write "visible": false and no position.',
    'If {article} {noun} cannot be seen in a frame, its entry has "visible": false and no coordinates.',
)
_BOX = "A box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2."
_REF_IDS = "Number the objects as you like, but keep each number for one object in all frames."
_SCHEMA = "The JSON follows this schema: "
_ANSWERS = (
    'Answer with JSON inside answer tags: <answer>{{"tracks": [{form}, …]}}</answer>',
    'Write your final answer as <answer>{{"tracks": [{form}, …]}}</answer> and nothing else inside the tags.',
)

_POINT = re.compile(r"\bpoint (\d{1,6}) at \((\d{1,4}), (\d{1,4})\)(?: in frame (\d{1,6}))?")
_BBOX = re.compile(r"\bbox (\d{1,6}) at \((\d{1,4}), (\d{1,4}), (\d{1,4}), (\d{1,4})\)(?: in frame (\d{1,6}))?")
_EXPRESSION = re.compile(r"^(\d{1,6})\. (.+)$", re.MULTILINE)
_FRAME_LABEL = re.compile(r"\s*Frame (\d{1,6}):\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedObject:
    """One thing to track: its id, and a grid point, a grid box, or words, given in frame ``frame``."""

    id: int
    frame: int = 0
    xy: tuple[int, int] | None = None
    bbox: tuple[int, int, int, int] | None = None
    expression: str | None = None


def frame_label(frame: int) -> str:
    """The text part that stands before a still: ``Frame 4:``."""
    return f"Frame {frame}:"


def read_frame_label(text: str) -> int | None:
    """The frame number of a label, or None when ``text`` is no label."""
    found = _FRAME_LABEL.fullmatch(text)
    return int(found.group(1)) if found else None


def track_prompt(
    task: Task, targets: Sequence[AskedObject], *, first: int, last: int, fps: float, rng: random.Random
) -> str:
    """Word a tracking prompt for images labelled ``Frame first`` to ``Frame last``, shown at ``fps``.

    ``pt`` and ``box`` ask from the frame after a target's own; ``ref`` asks every frame. ``rng`` picks wording
    and clause order; the answer's published schema and its form always come last.
    """
    noun, article = _NOUNS[task], "an" if task == "ref" else "a"
    late = any(target.frame > first for target in targets)
    start = first if task == "ref" else first + 1
    words = {
        "noun": noun,
        "article": article,
        "first": first,
        "last": last,
        "fps": fps,
        "start": start,
        "late": _LATE.format(noun=noun, article=article) if late else "",
        "form": _FORMS[task],
    }
    clauses = [rng.choice(_FRAMES), rng.choice(_ASKS), rng.choice(_GRIDS), rng.choice(_ABSENT)]
    clauses += {"pt": [], "box": [_BOX], "ref": [_REF_IDS]}[task]
    schema = json.dumps(answer_schema(task), separators=(",", ":"))
    texts = [clause.format(**words) for clause in clauses] + [_targets_clause(task, targets, rng)]
    rng.shuffle(texts)
    return "\n".join([*texts, f"{_SCHEMA}{schema}", rng.choice(_ANSWERS).format(**words)])


def _targets_clause(task: Task, targets: Sequence[AskedObject], rng: random.Random) -> str:
    if task == "ref":
        lines = [f"{target.id}. {' '.join((target.expression or '').split())}" for target in targets]
        return "\n".join([rng.choice(_REF_HEADS), *lines])
    return f"{rng.choice(_VERBS)} {_listed([_place(task, target) for target in targets])}."


def _place(task: Task, target: AskedObject) -> str:
    numbers = target.xy if task == "pt" else target.bbox
    inside = ", ".join(str(number) for number in numbers or ())
    late = f" in frame {target.frame}" if target.frame else ""
    return f"{_NOUNS[task]} {target.id} at ({inside}){late}"


def _listed(words: Sequence[str]) -> str:
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"


def read_track_prompt(text: str) -> tuple[Task, tuple[AskedObject, ...]] | None:
    """Task and targets of a prompt written by ``track_prompt``; None when the text asks for no tracking."""
    if "<answer>" not in text:
        return None
    points = tuple(
        AskedObject(id=int(m[1]), xy=(int(m[2]), int(m[3])), frame=int(m[4] or 0)) for m in _POINT.finditer(text)
    )
    if points:
        return "pt", points
    boxes = tuple(
        AskedObject(id=int(m[1]), bbox=(int(m[2]), int(m[3]), int(m[4]), int(m[5])), frame=int(m[6] or 0))
        for m in _BBOX.finditer(text)
    )
    if boxes:
        return "box", boxes
    words = tuple(AskedObject(id=int(m[1]), expression=m[2]) for m in _EXPRESSION.finditer(text))
    return ("ref", words) if words else None
