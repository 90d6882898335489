# SPDX-License-Identifier: Apache-2.0
"""Reads the entries of a tracking answer under one of the two rule sets."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, Never

from nemo_gym_video.tasks.answers.envelope import last_envelope
from nemo_gym_video.tasks.answers.strict_json import JsonReason, JsonRefused, read_json
from nemo_gym_video.tasks.answers.visible import MAX_ANSWER_CHARS, Output, VisibleReason, visible_text
from nemo_gym_video.tasks.tracking.masks import GRID
from nemo_gym_video.tasks.tracking.schema import ID_KEYS, LOCATION_KEYS, MAX_ENTRIES, Task

Rules = Literal["strict", "baseline"]
AnswerReason = (
    VisibleReason
    | JsonReason
    | Literal[
        "no_envelope", "no_tracks", "entry_no_object", "bad_id", "bad_frame", "bad_visible",
        "absent_with_location", "bad_location", "out_of_range", "box_turned_round",
    ]
)  # fmt: skip

# Ids and frames of rows are smaller. A larger number is kept as text, because Python hashes integers by a known
# modulus: thousands of them could be made to collide in one dict.
_HASHED_AS_ITSELF = 1 << 60
_NUMBER_STRING = re.compile(r"[ \t\n\r]*+([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)[ \t\n\r]*+", re.ASCII)
_MAX_NUMBER_STRING = 64


class Entry(NamedTuple):
    """One claim: object ``id`` on ``frame`` is at ``location`` (2 or 4 grid numbers), or absent (``None``)."""

    id: int | str
    frame: int | str
    location: tuple[float, ...] | None


class AnswerRefused(Exception):
    """The answer as a whole counts for nothing; ``reason`` is one word."""

    def __init__(self, reason: AnswerReason) -> None:
        super().__init__(reason)
        self.reason: AnswerReason = reason


def read_tracks(
    output: Output, task: Task, *, rules: Rules = "strict", max_chars: int = MAX_ANSWER_CHARS
) -> list[Entry]:
    """All entries of the last envelope of ``output``, in order.

    Raises:
        AnswerRefused: with the reason, for every answer that is refused, and nothing else for any text.
    """
    text, unseen = visible_text(output, keep_thinking=rules == "baseline", max_chars=max_chars)
    if unseen is not None:
        raise AnswerRefused(unseen)
    content = last_envelope(text)
    if content is None:
        raise AnswerRefused("no_envelope")
    return parse_tracks(content, task, rules=rules)


def parse_tracks(content: str, task: Task, *, rules: Rules = "strict") -> list[Entry]:
    """All entries of one envelope's content; raises as ``read_tracks``."""
    try:
        value = read_json(content, duplicate_keys=rules == "baseline")
    except JsonRefused as refused:
        raise AnswerRefused(refused.reason) from None
    tracks = value.get("tracks") if isinstance(value, dict) else None
    if not isinstance(tracks, list):
        raise AnswerRefused("no_tracks")
    if len(tracks) > MAX_ENTRIES:
        raise AnswerRefused("too_many_entries")
    id_key, location_key = ID_KEYS[task], LOCATION_KEYS[task]
    size = 4 if task == "box" else 2
    loose = rules == "baseline"
    return [_entry(entry, id_key, location_key, size, loose) for entry in tracks]


def _entry(entry: Any, id_key: str, location_key: str, size: int, loose: bool) -> Entry:
    if type(entry) is not dict:
        _refuse("entry_no_object")
    identity, frame = entry.get(id_key), entry.get("frame")
    if type(identity) is not int or not -_HASHED_AS_ITSELF < identity < _HASHED_AS_ITSELF:
        identity = _integer(identity, loose)
        if identity is None:
            _refuse("bad_id")
    if type(frame) is not int or not -_HASHED_AS_ITSELF < frame < _HASHED_AS_ITSELF:
        frame = _integer(frame, loose)
        if frame is None:
            _refuse("bad_frame")
    visible = entry.get("visible", True)
    location = entry.get(location_key)
    if visible is False:
        if location is not None:
            _refuse("absent_with_location")
        return Entry(identity, frame, None)
    if visible is not True and not loose:
        _refuse("bad_visible")
    if type(location) is not list or len(location) != size:
        _refuse("bad_location")
    if loose:
        location = [_number(value) if type(value) is str else value for value in location]
    for value in location:
        if type(value) is not int and type(value) is not float:
            _refuse("bad_location")
        if not 0 <= value <= GRID:
            _refuse("out_of_range")
    if size == 4 and not (location[0] < location[2] and location[1] < location[3]):
        _refuse("box_turned_round")
    return Entry(identity, frame, tuple(location))


def _integer(value: Any, loose: bool) -> int | str | None:
    """``value`` as an integer (1.0 is one); a huge one as text that stands for it; ``None`` when it is none."""
    if type(value) is not int:
        if loose and type(value) is str:
            value = _number(value)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            return None
    return value if abs(value) < _HASHED_AS_ITSELF else hex(value)


def _number(text: str) -> int | float | None:
    """The number that a string spells in plain decimal digits, for the baseline rule set."""
    if len(text) > _MAX_NUMBER_STRING:
        return None
    spelled = _NUMBER_STRING.fullmatch(text)
    if spelled is None:
        return None
    digits = spelled[1]
    return int(digits) if digits.lstrip("+-").isdecimal() else float(digits)


def _refuse(reason: AnswerReason) -> Never:
    raise AnswerRefused(reason)
