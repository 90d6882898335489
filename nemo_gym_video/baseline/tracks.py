# SPDX-License-Identifier: Apache-2.0
"""The tracking policy: reads targets and numbered frames from the conversation and writes the tracks envelope.

Each turn follows every target over all frames of the conversation so far and answers the frames that the newest
message brought, so a clip that comes in chunks is tracked across them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.baseline.follow import Detection, follow_box, follow_point
from nemo_gym_video.baseline.refer import locate
from nemo_gym_video.baseline.seen import Pixels, SeenMedia, SeenMessage, like_first, text_of
from nemo_gym_video.prepare.synthetic.questions import COLOURS, read_expression
from nemo_gym_video.tasks.tracking.prompts import AskedObject, read_frame_label, read_track_prompt
from nemo_gym_video.tasks.tracking.schema import ID_KEYS, Task

_MAX_TARGETS = 64
_JITTER = 4.0
"""Standard deviation of the jitter at temperature 1, in grid steps."""


@dataclass(frozen=True, slots=True)
class NumberedFrame:
    """One frame of the conversation: its number, its pixels, and whether the newest message brought it."""

    number: int
    pixels: Pixels
    new: bool


def matches(messages: Sequence[SeenMessage]) -> bool:
    """Whether the conversation asks for tracks."""
    return read_track_prompt(text_of(messages)) is not None


def respond(messages: Sequence[SeenMessage], *, rng: random.Random | None, temperature: float) -> str:
    """The answer envelope for the newest frames."""
    request = read_track_prompt(text_of(messages))
    frames = numbered_frames(messages)
    if request is None or not frames:
        return '<answer>{"tracks":[]}</answer>'
    task, targets = request
    entries = [
        _entry(task, target.id, frame, found, rng, temperature)
        for target in _once(targets)
        for frame, found in _follow(task, target, frames)
        if frame.new
    ]
    return f"<answer>{json.dumps({'tracks': entries}, separators=(',', ':'))}</answer>"


def _once(targets: Sequence[AskedObject]) -> list[AskedObject]:
    """Each target once, as first said (a prompt may say them again with every chunk), and not too many."""
    return list({target.id: target for target in reversed(targets)}.values())[:_MAX_TARGETS]


def numbered_frames(messages: Sequence[SeenMessage]) -> list[NumberedFrame]:
    """Every frame of the conversation. A ``Frame N:`` label numbers the next one, without it counting goes on."""
    holders = [index for index, message in enumerate(messages) if _media(message)]
    frames: list[NumberedFrame] = []
    number = 0
    for index in holders:
        for part in messages[index].parts:
            if isinstance(part, str):
                label = read_frame_label(part.strip().rpartition("\n")[2])
                number = number if label is None else label
                continue
            for pixels in part.frames:
                frames.append(NumberedFrame(number, pixels, index == holders[-1]))
                number += 1
    alike = like_first([frame.pixels for frame in frames])
    return [NumberedFrame(frame.number, pixels, frame.new) for frame, pixels in zip(frames, alike, strict=True)]


def _media(message: SeenMessage) -> list[SeenMedia]:
    return [part for part in message.parts if isinstance(part, SeenMedia)]


def _follow(
    task: Task, target: AskedObject, frames: Sequence[NumberedFrame]
) -> list[tuple[NumberedFrame, Detection | None]]:
    """The frames asked of a target with where it is in each: for points and boxes those after its own."""
    pixels = [frame.pixels for frame in frames]
    if task == "ref":
        return list(zip(frames, _find(pixels, target.expression or ""), strict=True))
    start = next((place for place, frame in enumerate(frames) if frame.number == target.frame), None)
    if start is None:
        return []
    height, width = pixels[start].shape[:2]
    if target.xy is not None:
        x, y = target.xy
        found = follow_point(pixels[start:], (x / 1000 * width, y / 1000 * height))
    else:
        x1, y1, x2, y2 = target.bbox or (0, 0, 1000, 1000)
        box = (x1 / 1000 * width, y1 / 1000 * height, x2 / 1000 * width, y2 / 1000 * height)
        found = follow_box(pixels[start:], box)
    return list(zip(frames[start + 1 :], found[1:], strict=True))


def _find(pixels: Sequence[Pixels], expression: str) -> list[Detection | None]:
    named = read_expression(expression)
    if named is not None:
        return locate(pixels, *named)
    colour = next((word for word in expression.lower().split() if word in COLOURS), None)
    return [None] * len(pixels) if colour is None else locate(pixels, colour, None)


def _entry(
    task: Task,
    target_id: int,
    frame: NumberedFrame,
    found: Detection | None,
    rng: random.Random | None,
    temperature: float,
) -> dict[str, Any]:
    entry: dict[str, Any] = {ID_KEYS[task]: target_id, "frame": frame.number}
    height, width = frame.pixels.shape[:2]
    if found is None:
        return {**entry, "visible": False}
    shift = (
        (0.0, 0.0) if rng is None else (rng.gauss(0, _JITTER * temperature), rng.gauss(0, _JITTER * temperature))
    )
    if task != "box":
        return {**entry, "xy": _grid(found.xy, (width, height), shift), "visible": True}
    (x1, y1), (x2, y2) = (_grid(corner, (width, height), shift) for corner in (found.box[:2], found.box[2:]))
    x1, y1 = min(x1, 999.0), min(y1, 999.0)
    return {**entry, "bbox": [x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)], "visible": True}


def _grid(xy: Sequence[float], size: tuple[int, int], shift: tuple[float, float]) -> list[float]:
    """Pixels to the 0-1000 grid, kept inside it, to a tenth."""
    return [
        round(min(1000.0, max(0.0, value / extent * 1000 + move)), 1)
        for value, extent, move in zip(xy, size, shift, strict=True)
    ]
