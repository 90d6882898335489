# SPDX-License-Identifier: Apache-2.0
"""Texts that are hard on scanners, in any size: what ``--scaling`` doubles and the campaign mixes in."""

from __future__ import annotations

import itertools
from collections.abc import Callable

Shape = Callable[[int], str]

PIECES: dict[str, tuple[str, str, str]] = {
    # name: what stands before, what repeats, what stands after
    "prose": ("", "The dog runs over the lawn. ", ""),
    "spaces": ("", " ", ""),
    "spaces in an envelope": ("<answer>", " ", "</answer>"),
    "spaces after an envelope's opening": ("<answer>", " ", ""),
    "less-than": ("", "<", ""),
    "newlines": ("", "\n", ""),
    "emoji": ("", "\U0001f600", ""),
    "surrogates": ("", "\ud800", ""),
    "combining marks": ("\\boxed{a", "\u0315\u0300", "}"),
    "ligatures": ("\\boxed{", "\ufdfa", "}"),
    "answer openings": ("", "<answer>", ""),
    "answer closings": ("", "</answer>", ""),
    "envelopes": ("", "<answer></answer>", ""),
    "almost answers": ("", "<answer", ""),
    "think openings": ("", "<think>", ""),
    "think closings": ("", "</think>", ""),
    "thoughts": ("", "<think></think>", ""),
    "thinking in think": ("<think>", "<thinking>", "</think>"),
    "both tags crossed": ("", "<think><thinking></think></thinking>", ""),
    "almost thoughts": ("", "<thin", ""),
    "box openings": ("", "\\boxed{", ""),
    "boxes": ("", "\\boxed{B}", ""),
    "nested boxes": ("\\boxed{", "\\boxed{", "B"),
    "open braces": ("\\boxed{", "{", ""),
    "brace pairs": ("\\boxed{", "{}", ""),
    "closing braces": ("\\boxed{B}", "}", ""),
    "wrappers": ("\\boxed{", "\\text{", "B"),
    "spaced text": ("\\boxed{\\text{", " ", "B}}"),
    "dollars": ("\\boxed{", "$", "}"),
    "stars": ("\\boxed{", "**", "}"),
    "full stops": ("\\boxed{B", ".", "}"),
    "thin spaces": ("\\boxed{B", "\\,", "}"),
    "label text": ("\\boxed{B. ", "x ", "}"),
    "letters": ("\\boxed{B. ", "A ", "}"),
    "brackets": ("<answer>", "[", "</answer>"),
    "bracket pairs": ("<answer>[", "[],", "[]]</answer>"),
    "objects": ("<answer>[", "{},", "{}]</answer>"),
    "digits": ("<answer>[", "9", "]</answer>"),
    "digit runs": ("<answer>[", "9" * 4300 + ",", "1]</answer>"),
    "long fractions": ("<answer>[", "0." + "1" * 4000 + ",", "1]</answer>"),
    "exponents": ("<answer>[", "1e100,", "1]</answer>"),
    "exponent signs": ("<answer>[", "e+", "]</answer>"),
    "numbers": ("<answer>[", "1,", "1]</answer>"),
    "floats": ("<answer>[", "0.5,", "1]</answer>"),
    "quotes": ("<answer>[", '"', "]</answer>"),
    "strings": ("<answer>[", '"",', '""]</answer>'),
    "backslashes": ('<answer>["', "\\", '"]</answer>'),
    "escaped quotes": ('<answer>["', '\\"', '"]</answer>'),
    "escapes": ('<answer>["', "\\ud800", '"]</answer>'),
    "nulls": ("<answer>[", "null,", "null]</answer>"),
    "repeated keys": ("<answer>{", '"a":1,', '"a":1}</answer>'),
    "minus signs": ("<answer>", "-", "</answer>"),
    "one claim repeated": ('<answer>{"tracks":[', '{"point":1,"frame":1,"id":1,"xy":[1,1]},',
                           '{"point":1,"frame":1,"id":1,"visible":false}]}</answer>'),
    "absent claims": ('<answer>{"tracks":[', '{"id":1,"point":1,"frame":1,"visible":false},',
                      '{"point":1,"frame":1,"id":1,"visible":false}]}</answer>'),
    "invalid entries": ('<answer>{"tracks":[', "{},", "{}]}</answer>"),
}  # fmt: skip


def piece_shape(before: str, repeat: str, after: str) -> Shape:
    """The shape that repeats one piece."""

    def build(size: int) -> str:
        count = max(1, (size - len(before) - len(after)) // len(repeat))
        return before + repeat * count + after

    return build


def _tracks(entries: Callable[[int], str]) -> Shape:
    def build(size: int) -> str:
        parts: list[str] = []
        length = 0
        for number in itertools.count():
            part = entries(number)
            length += len(part) + 1
            if length + 40 > size:
                break
            parts.append(part)
        return '<answer>{"tracks":[' + ",".join(parts) + "]}</answer>"

    return build


CLASH = (1 << 61) - 1  # Python hashes every multiple of it to 0

SHAPES: dict[str, Shape] = {name: piece_shape(*pieces) for name, pieces in PIECES.items()} | {
    "an id an entry": _tracks(lambda n: f'{{"id":{n},"point":1,"frame":{n % 64 + 1},"xy":[{n % 1000},5]}}'),
    "an id an entry, absent": _tracks(lambda n: f'{{"id":{n},"point":{n},"frame":1,"visible":false}}'),
    "ids that hash alike": _tracks(lambda n: f'{{"id":{CLASH * n},"point":1,"frame":1,"visible":false}}'),
    "frames that hash alike": _tracks(lambda n: f'{{"id":1,"point":1,"frame":{CLASH * n},"visible":false}}'),
    "a frame an entry": _tracks(lambda n: f'{{"id":1,"point":1,"frame":{n},"xy":[500,{n % 1000}]}}'),
    "ids of powers of two": _tracks(lambda n: f'{{"id":{n << 30},"point":1,"frame":{n << 20},"visible":false}}'),
    "keys": _tracks(lambda n: f'{{"k{n}":{n}}}'),
}
