# SPDX-License-Identifier: Apache-2.0
"""Scoring an answer: tracks against decoding every mask, boxed letters against nemo-gym's own function."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from benchmarks.common import Comparison, compare
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.boxed.options import boxed_row
from nemo_gym_video.tasks.tracking import encode, score_tracks

HEIGHT, WIDTH, FRAMES, OBJECTS = 1080, 1920, 64, 3


def _blob(number: int, frame: int) -> Any:
    """A ragged ellipse of some 600 runs that moves with the frame."""
    ys, xs = np.mgrid[:HEIGHT, :WIDTH]
    x, y = 300 + number * 500 + frame * 3, 540 + 40 * np.sin(frame / 5)
    ragged = 30 * np.sin(xs / 9.0)
    return ((xs - x) / 300) ** 2 + ((ys - y + ragged) / 250) ** 2 < 1


def tracks_row() -> tuple[dict[str, Any], str]:
    """A pt row of 3 objects on 64 frames with 1080p masks, and the right answer to it."""
    objects, tracks = [], []
    for number in range(OBJECTS):
        targets = []
        for frame in range(1, FRAMES + 1):
            targets.append({"frame": frame, "visible": True, "mask": encode(_blob(number, frame)).to_coco()})
            x = (300 + number * 500 + frame * 3) / WIDTH * 1000
            tracks.append({"point": number + 1, "frame": frame, "xy": [round(x), 500], "visible": True})
        objects.append({"id": number + 1, "reference_frame": 0, "reference_xy": [500, 500], "targets": targets})
    row = {"task": "pt", "coordinate_space": "grid1000", "objects": objects}
    return row, f"They move on.\n<answer>{json.dumps({'tracks': tracks})}</answer>"


def _decode_and_look(row: dict[str, Any], text: str) -> float:
    """What a verifier does that decodes: the same reward for a well-formed answer, and no rule checked."""
    from pycocotools import mask as coco  # extra: dev

    body = json.loads(text[text.rfind("<answer>") + 8 : text.rfind("</answer>")])
    answers = {(entry["point"], entry["frame"]): entry["xy"] for entry in body["tracks"]}
    means = []
    for item in row["objects"]:
        hits = 0
        for target in item["targets"]:
            pixels = coco.decode(target["mask"])
            x, y = answers[item["id"], target["frame"]]
            hits += pixels[min(int(y / 1000 * HEIGHT), HEIGHT - 1), min(int(x / 1000 * WIDTH), WIDTH - 1)]
        means.append(hits / len(item["targets"]))
    return sum(means) / len(means)


def _tracks() -> Comparison:
    row, text = tracks_row()
    if score_tracks(text, row).reward != 1 or _decode_and_look(row, text) != 1:
        raise RuntimeError("the two scorers disagree on a right answer")
    return compare(
        f"score {OBJECTS} x {FRAMES} points on {WIDTH}x{HEIGHT} masks, row read anew",
        ours=("score_tracks", lambda: score_tracks(text, row)),
        reference=("pycocotools decode", lambda: _decode_and_look(row, text)),
        claim=5,
    )


def _boxed(name: str, contents: tuple[str, ...], *, claim: float | None = None) -> Comparison:
    mcqa = importlib.import_module("resources_servers.mcqa.app")
    read_letter = mcqa._parse_answer_letter_strict_boxed

    options = [{"A": "Black"}, {"B": "White"}, {"C": "A dog"}, {"D": "Not white"}]
    row = boxed_row({"options": options, "expected_answer": "B"})
    letters = mcqa._get_allowed_letters_from_options(options)
    prose = "The man walks from the left to the parked car and opens its door. " * 16
    texts = [f"{prose}So the answer is \\boxed{{{content}}}." for content in contents] * 500

    def ours() -> float:
        return sum(score_boxed_row(text, row).reward for text in texts)

    def theirs() -> float:
        return float(sum(read_letter(text, letters)[0] == "B" for text in texts))

    if ours() != theirs() or ours() != len(texts):
        raise RuntimeError("the two scorers disagree on a right answer")
    return compare(
        f"score {len(texts)} boxed answers of 1 kB, {name}",
        ours=("score_boxed_row", ours),
        reference=("nemo-gym mcqa", theirs),
        repeats=15,
        claim=claim,
    )


def run() -> list[Comparison]:
    """All comparisons."""
    return [
        _tracks(),
        _boxed("a letter", ("B",), claim=1),
        _boxed("all common forms", ("B", "B", r"\text{B}", "(B)", "B. White"), claim=1),
    ]
