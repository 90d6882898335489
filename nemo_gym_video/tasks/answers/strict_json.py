# SPDX-License-Identifier: Apache-2.0
"""Reads JSON by RFC 8259 from text that nobody vouches for: bounded before it is parsed, never repaired."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal, Never

import numpy as np
import numpy.typing as npt

MAX_DEPTH = 16
MAX_DIGITS = 4300
MAX_OBJECTS = 100_001
"""An answer of 100,000 entries and the object around them."""

JsonReason = Literal["not_json", "too_deep", "number_too_long", "too_many_entries", "duplicate_key", "not_finite"]

_LONG_NUMBER = re.compile(rb"(?<![0-9eE.+\-])[0-9eE.+\-]{%d,}+" % (MAX_DIGITS + 1))
# A number can only overflow a double with a three-digit exponent or more than 200 digits; only then is every
# float looked at in Python.
_MAY_OVERFLOW = re.compile(rb"[eE]\+?0*+[0-9]{3}|(?<![0-9])[0-9]{200}")
# Any stretch of 2 n - 1 bytes holds a whole aligned block of n, so a quick look at blocks rules long numbers out.
_LONG_BLOCK = 2048
_DIGITS_BLOCK = 64
# Text is looked at in pieces that stay in the processor's cache; a multiple of both blocks.
_PIECE = 1 << 16


def _table(values: dict[bytes, int]) -> bytes:
    """A table for ``bytes.translate``: ``values`` for the bytes named, 0 for all others."""
    return bytes(next((value for keys, value in values.items() if code in keys), 0) for code in range(256))


_QUOTE = _table({b'"': 1})
_DEPTH_STEP = _table({b"[{": 1, b"]}": 255})  # 255 is -1 as a signed byte
_IN_NUMBER = _table({b"0123456789eE.+-": 1})
_DIGIT = _table({b"0123456789": 1})
_EXPONENT = _table({b"eE": 1})


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
    finite = _finite if _check_bounds(text) else None
    unique = None if duplicate_keys else _unique_keys
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=finite, object_pairs_hook=unique)
    except (ValueError, RecursionError, MemoryError):
        raise JsonRefused("not_json") from None


def _check_bounds(text: str) -> bool:
    """Refuse what is too deep, too long or too many before any parser sees it. True: a float may overflow."""
    data = text.encode("utf-8", "surrogatepass")
    # Without escaped backslashes, then without escaped quotes, every quote that is left opens or ends a string.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    quoted, depth, objects = 0, 0, 0
    long_number = may_overflow = False
    pieces: list[bytes] = []
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        in_string = np.bitwise_xor.accumulate(_flags(piece, _QUOTE)) ^ quoted
        quoted = int(in_string[-1])
        blanked = np.where(in_string.view(np.bool_), np.uint8(ord(" ")), np.frombuffer(piece, dtype=np.uint8))
        outside = blanked.tobytes()
        pieces.append(outside)
        depths = np.cumsum(_flags(outside, _DEPTH_STEP), dtype=np.int32)
        if depth + int(depths.max()) > MAX_DEPTH:
            raise JsonRefused("too_deep")
        depth += int(depths[-1])
        objects += outside.count(b"{")
        if objects > MAX_OBJECTS:
            raise JsonRefused("too_many_entries")
        digits = _flags(outside, _DIGIT)
        long_number |= _has_block(_flags(outside, _IN_NUMBER), _LONG_BLOCK)
        may_overflow |= _has_block(digits, _DIGITS_BLOCK) or _has_exponent(outside, digits)
    return (long_number or may_overflow) and _check_numbers(b"".join(pieces))


def _check_numbers(outside: bytes) -> bool:
    """Refuse numbers of too many digits; whether a float may overflow. ``outside`` has strings blanked out."""
    for number in _LONG_NUMBER.finditer(outside):
        signs = number.group().translate(None, b"0123456789")
        if len(number.group()) - len(signs) > MAX_DIGITS:
            raise JsonRefused("number_too_long")
    return _MAY_OVERFLOW.search(outside) is not None


def _flags(data: bytes, table: bytes) -> npt.NDArray[np.int8]:
    return np.frombuffer(data.translate(table), dtype=np.int8)


def _has_exponent(outside: bytes, digits: npt.NDArray[np.int8]) -> bool:
    """Whether an e stands right after a digit, or where the digit would be in the piece before."""
    exponents = _flags(outside, _EXPONENT)
    return bool(exponents[0]) or bool((digits[:-1] & exponents[1:]).any())


def _has_block(flags: npt.NDArray[np.int8], size: int) -> bool:
    """Whether some aligned block of ``size`` flags is all true."""
    whole = flags.size // size * size
    return bool(flags[:whole].reshape(-1, size).all(axis=1).any())


def _refuse_constant(_: str) -> Never:
    raise JsonRefused("not_finite")


def _finite(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise JsonRefused("not_finite")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise JsonRefused("duplicate_key")
    return value
