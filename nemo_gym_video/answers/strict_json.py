# SPDX-License-Identifier: Apache-2.0
"""Reads JSON by RFC 8259 from text that nobody vouches for: bounded before it is parsed, never repaired."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, Never

import numpy as np
import numpy.typing as npt

MAX_DEPTH = 16
MAX_DIGITS = 4300
MAX_OBJECTS = 100_001
"""An answer of 100,000 entries and the object around them."""

JsonReason = Literal["not_json", "too_deep", "number_too_long", "too_many_entries", "duplicate_key", "not_finite"]

_NUMBER = rb"0-9eE.+\-"
_LONG_NUMBER = re.compile(rb"(?<![%s])[%s]{%d,}+" % (_NUMBER, _NUMBER, MAX_DIGITS + 1))
# A number can only overflow a double with a three-digit exponent or more than 200 digits; only then is every
# float looked at in Python.
_MAY_OVERFLOW = re.compile(rb"[eE]\+?0*+[0-9]{3}|(?<![0-9])[0-9]{200}")
_DEPTH_STEP = np.zeros(256, dtype=np.int8)
_DEPTH_STEP[list(b"[{")] = 1
_DEPTH_STEP[list(b"]}")] = -1


class JsonRefused(Exception):
    """The text is no JSON that this reader takes; ``reason`` is one word of ``JsonReason``."""

    def __init__(self, reason: JsonReason) -> None:
        super().__init__(reason)
        self.reason: JsonReason = reason


def read_json(text: str, *, duplicate_keys: bool = False) -> Any:
    """Parse ``text`` as one JSON value.

    ``duplicate_keys`` lets the last of two equal keys win; otherwise they are refused, at any depth.

    Raises:
        JsonRefused: for every text that is refused, and nothing else for any text.
    """
    may_overflow = _check_bounds(text)
    hooks: dict[str, Any] = {"parse_constant": _refuse_constant}
    if may_overflow:
        hooks["parse_float"] = _finite
    if not duplicate_keys:
        hooks["object_pairs_hook"] = _unique_keys
    try:
        return json.loads(text, **hooks)
    except (ValueError, RecursionError, MemoryError):
        raise JsonRefused("not_json") from None


def _check_bounds(text: str) -> bool:
    """Refuse what is too deep, too long or too many before any parser sees it. True: a float may overflow."""
    data = text.encode("utf-8", "surrogatepass")
    # Without escaped backslashes, then without escaped quotes, every quote that is left opens or ends a string.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if not data:
        raise JsonRefused("not_json")
    codes = np.frombuffer(data, dtype=np.uint8)
    in_string = _in_string(codes)
    outside = np.where(in_string, np.uint8(ord(" ")), codes)
    if int(np.cumsum(_DEPTH_STEP[outside], dtype=np.int64).max()) > MAX_DEPTH:
        raise JsonRefused("too_deep")
    if np.count_nonzero(outside == ord("{")) > MAX_OBJECTS:
        raise JsonRefused("too_many_entries")
    flat = outside.tobytes()
    for number in _LONG_NUMBER.finditer(flat):
        if sum(48 <= code <= 57 for code in number.group()) > MAX_DIGITS:
            raise JsonRefused("number_too_long")
    return _MAY_OVERFLOW.search(flat) is not None


def _in_string(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return np.bitwise_xor.accumulate((codes == ord('"')).view(np.int8)).view(np.bool_)


def _refuse_constant(_: str) -> Never:
    raise JsonRefused("not_finite")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise JsonRefused("not_finite")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise JsonRefused("duplicate_key")
    return value
