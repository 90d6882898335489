# SPDX-License-Identifier: Apache-2.0
"""JSON by RFC 8259, bounded before it is parsed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.answers.strict_json import JsonRefused, read_json


def refusal(text: str, **options: Any) -> str | None:
    try:
        read_json(text, **options)
    except JsonRefused as refused:
        return refused.reason
    return None


ACCEPTED = [
    "{}", "[]", " [1] ", "\t\r\n0\n", '""', "null", "-0", "1e5", "1E-999", "0.1e+2", '"\\u0000"', '"\\ud800"',
    '{"a": {"a": 1}}', "[" * 16 + "]" * 16, "9" * 4300, "[" + "1," * 200_000 + "1]", '"[[[[[[[[[[[[[[[[[["',
    '"\\"[[[[[[[[[[[[[[[[[[[["', '["\\\\", [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]', '"' + "9" * 5000 + '"', "1e308",
    '"\u2028"', "[" + "{}," * 100_000 + "{}]", '"1e999"', '{"NaN": "NaN"}',
]  # fmt: skip


@pytest.mark.parametrize("text", ACCEPTED, ids=range(len(ACCEPTED)))
def test_json_is_read(text: str) -> None:
    assert read_json(text) == json.loads(text)


REFUSED = [
    ("", "not_json"), (" ", "not_json"), ("{", "not_json"), ("[1,]", "not_json"), ("{'a': 1}", "not_json"),
    ("[1] 2", "not_json"), ("01", "not_json"), ("+1", "not_json"), (".5", "not_json"), ("1.", "not_json"),
    ("0x1", "not_json"), ("1_000", "not_json"), ("nan", "not_json"), ("True", "not_json"), ("\ufeff1", "not_json"),
    ("\u00a01", "not_json"), ("\u30001", "not_json"), ("\x0b1", "not_json"), ("\x001", "not_json"),
    ('"a\nb"', "not_json"),
    ('"\\x"', "not_json"), ('"a', "not_json"), ("// c\n1", "not_json"), ("\u0661", "not_json"),
    ('"\\u12"', "not_json"), ("\\", "not_json"), ("[[1]", "not_json"), ("```json\n1\n```", "not_json"),
    ("NaN", "not_finite"), ("-Infinity", "not_finite"), ("[Infinity]", "not_finite"), ("1e309", "not_finite"),
    ("-1e999", "not_finite"), ("1e0000400", "not_finite"), ("9" * 310 + ".0", "not_finite"),
    ("9" * 250 + "e99", "not_finite"), ('{"a": [1e999]}', "not_finite"),
    ("[" * 17 + "]" * 17, "too_deep"), ("[" * 100_000, "too_deep"), ('{"a":' * 17 + "1" + "}" * 17, "too_deep"),
    ('"\\\\"' + "[" * 17, "too_deep"),
    ("9" * 4301, "number_too_long"), ("0." + "1" * 4300, "number_too_long"),
    ("-" + "1" * 1_000_000, "number_too_long"),
    ("1e" + "1" * 4300, "number_too_long"),
    ("[" + "{}," * 100_001 + "{}]", "too_many_entries"),
    ('{"a": 1, "a": 1}', "duplicate_key"), ('{"a": 1, "\\u0061": 2}', "duplicate_key"),
    ('[{"b": {"a": 1, "c": 2, "a": 3}}]', "duplicate_key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_json_is_refused(text: str, reason: str) -> None:
    assert refusal(text) == reason


def test_last_duplicate_wins_when_allowed() -> None:
    assert read_json('{"a": 1, "a": 2}', duplicate_keys=True) == {"a": 2}
    assert refusal('{"a": NaN, "a": 2}', duplicate_keys=True) == "not_finite"


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((_depth(item) for item in inner), default=0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(value=VALUES, ascii_only=st.booleans(), deeper=st.integers(0, 14))
def test_what_the_standard_encoder_writes_is_read(value: Any, ascii_only: bool, deeper: int) -> None:
    for _ in range(deeper):
        value = [value]
    text = json.dumps(value, ensure_ascii=ascii_only)
    expected = "not_finite" if "Infinity" in json.dumps(value, ensure_ascii=True).replace('"', "") else None
    if expected and not _holds_infinity(value):
        expected = None
    if _depth(value) > 16:
        expected = "too_deep"
    assert refusal(text) == expected
    if expected is None:
        assert read_json(text) == value


def _holds_infinity(value: Any) -> bool:
    if isinstance(value, float):
        return math.isinf(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_holds_infinity(item) for item in inner)


NOISE = st.lists(
    st.sampled_from(
        ['"', "\\", "[", "]", "{", "}", ",", ":", "1", "e", "9" * 30, "E+400", "\n", "\ufeff", "\ud800", "NaN"]
    ),
    max_size=40,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(NOISE | st.text(st.characters(exclude_categories=())))
def test_nothing_but_a_refusal_is_raised(text: str) -> None:
    if refusal(text) is None:
        json.loads(text)
