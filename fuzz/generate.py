# SPDX-License-Identifier: Apache-2.0
"""Random answers and rows: mostly almost right, because what is almost right goes deepest."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from fuzz.shapes import CLASH, SHAPES

FRAGMENTS = (
    "<answer>", "</answer>", "<ANSWER>", "<think>", "</think>", "<Thinking>", "</thinking>", "\\boxed{", "\\text{",
    "{", "}", "[", "]", ",", ":", '"', "\\", "$", "**", ".", "\\,", "(", ")", " ", "\n", "\t", "\u00a0", "\ufeff",
    "\u2028", "\ud800", "\udc00", "\x00", "\uff22", "\u0412", "\u0130", "\u212a", "\U0001d401", "A", "B", "C", "b",
    " or ", "/", "-", "0", "1", "1000", "1001", "1e999", "NaN", "-Infinity", "true", "false", "null", "9" * 310,
    '"tracks"', '"point"', '"id"', '"box"', '"frame"', '"xy"', '"bbox"', '"visible"', '{"tracks":[', "]}",
    "```json\n",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 1.0, 1.5, 999.5, 1000, 1001, 1e308, float("inf"), float("nan"), 1 << 53,
    CLASH, 10**400, "", "1", "0.5", "nan", "pt", "\ud800", [], {}, [1], [1, 2], [1, 2, 3, 4], [[]], {"a": {}},
)  # fmt: skip
TEXTS = ("White", "Black", "A dog", "Not white", "", "B", "\uff22", "x" * 5000)
FRAMES = 5


def answer(rng: random.Random) -> str:
    """A text of up to a few kB; one in five thousand is a hard shape of up to 1 MiB."""
    kind = rng.random()
    if kind < 0.0002:
        return rng.choice(tuple(SHAPES.values()))(rng.choice((1 << 10, 1 << 16, 1 << 20)))
    if kind < 0.3:
        return "".join(rng.choices(FRAGMENTS, k=rng.randrange(30)))
    if kind < 0.5:
        inner = "".join(rng.choices(FRAGMENTS + TEXTS[:5], k=rng.randrange(6)))
        return f"so \\boxed{{{inner}}}" + rng.choice(("", "", ".", "}", " \\boxed{", "<think>"))
    text = json.dumps({"tracks": [entry(rng) for _ in range(rng.randrange(12))]}, ensure_ascii=rng.random() < 0.5)
    text = rng.choice(("", "<think>a</think>", "b</think>", "ok ")) + f"<answer>{text}</answer>"
    return spoil(rng, text) if rng.random() < 0.3 else text


def spoil(rng: random.Random, text: str) -> str:
    """``text`` with a few pieces cut out, doubled, or put in."""
    for _ in range(rng.randrange(1, 4)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        to = min(to, at + 12)
        text = text[:at] + rng.choice(("", text[at:to] * 2, rng.choice(FRAGMENTS))) + text[to:]
    return text


def odd(rng: random.Random) -> Any:
    """A value that belongs nowhere, a fresh one, because rows are spoiled in place."""
    return copy.deepcopy(rng.choice(ODD))


def entry(rng: random.Random) -> Any:
    """One entry of an answer."""
    if rng.random() < 0.005:
        return odd(rng)
    made: dict[str, Any] = {"frame": rng.randrange(1, FRAMES + 2)}
    made[rng.choice(("point", "box", "id", "id"))] = made["id"] = rng.randrange(1, 5)
    made["point"] = made["box"] = made["id"]
    if rng.random() < 0.3:
        made["visible"] = False
    else:
        made["xy"] = [rng.randrange(1001), round(rng.random() * 1000, 2)]
        left, top = rng.randrange(900), rng.randrange(900)
        made["bbox"] = [left, top, left + rng.randrange(1, 100), top + rng.randrange(1, 100)]
        if rng.random() < 0.5:
            made["visible"] = True
    if rng.random() < 0.02:
        made[rng.choice(tuple(made))] = odd(rng)
    return made


def track_row(rng: random.Random) -> dict[str, Any]:
    """A sound tracking row."""
    task = rng.choice(("pt", "box", "ref"))
    objects = []
    for identity in range(1, rng.randrange(1, 4) + 1):
        targets: list[dict[str, Any]] = []
        for frame in sorted(rng.sample(range(1, FRAMES + 1), rng.randrange(1, FRAMES + 1))):
            if rng.random() < 0.3:
                targets.append({"frame": frame, "visible": False})
                continue
            left, top = rng.randrange(800), rng.randrange(800)
            targets.append({"frame": frame, "visible": True, "xy": [left, top], "mask": mask(rng),
                            "bbox": [left, top, left + rng.randrange(1, 200), top + 99.5]})  # fmt: skip
        objects.append({"id": identity, "reference_xy": [5, 5], "targets": targets})
    row: dict[str, Any] = {"task": task, "coordinate_space": "grid1000", "objects": objects}
    if rng.random() < 0.2:
        row["absence_score"] = rng.choice((0, 0.5, 1))
    return row


def mask(rng: random.Random) -> dict[str, Any]:
    """A sound mask of runs."""
    height, width = rng.randrange(1, 50), rng.randrange(2, 50)
    cuts = sorted(rng.sample(range(1, height * width), min(rng.randrange(1, 8), height * width - 1)))
    runs = [end - start for start, end in zip([0, *cuts], [*cuts, height * width], strict=True)]
    return {"size": [height, width], "counts": runs}


def boxed_row(rng: random.Random) -> dict[str, Any]:
    """A sound multiple-choice row."""
    options = [{letter: rng.choice(TEXTS)} for letter in "ABCDEFGHIJ"[: rng.randrange(2, 11)]]
    row: dict[str, Any] = {"options": options, "expected_answer": rng.choice("AB")}
    if rng.random() < 0.5:
        row["grading_mode"] = rng.choice(("strict_single_letter_boxed", "lenient_boxed"))
    return row


def spoiled_row(rng: random.Random) -> Any:
    """A row with one to three places changed to something odd."""
    row: Any = rng.choice((track_row, boxed_row))(rng)
    for _ in range(rng.randrange(1, 4)):
        place = row
        while rng.random() < 0.8:
            inner = [value for value in (place.values() if isinstance(place, dict) else place)
                     if isinstance(value, dict | list) and value]  # fmt: skip
            if not inner:
                break
            place = rng.choice(inner)
        key = rng.choice(tuple(place) if isinstance(place, dict) else range(len(place)))
        if rng.random() < 0.2:
            del place[key]
            if not row:
                return row
        elif rng.random() < 0.1:
            place[key] = "".join(rng.choices("0123456789:;<=>?@PQRSTo\u00e9", k=rng.randrange(20)))
        else:
            place[key] = odd(rng)
    return row
