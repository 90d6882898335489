# SPDX-License-Identifier: Apache-2.0
"""Reads what a model asks ``clip_explorer`` for: a clip, single frames, or a crop; by tool call or JSON in text.

In text a request stands between ``<request>`` and ``</request>``; as with answers the last closed pair counts.
Scanning is linear; a malformed request becomes a ``BadRequest`` whose ``advice`` is what the model gets to read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LIMIT = 4096
_OPEN, _CLOSE = "<request>", "</request>"

REQUEST_FORMS = (
    '<request>{"clip": {"start": 2.0, "end": 4.5, "fps": 4}}</request>',
    '<request>{"frames": {"times": [1.5, 3.0]}}</request>',
    '<request>{"crop": {"time": 3.0, "box": [250, 250, 750, 750]}}</request>',
)
"""The forms that prompts show."""

_NUMBER = {"type": "number"}


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
    }


TOOLS = (
    _tool("clip", "Show part of the video.", {"start": _NUMBER, "end": _NUMBER, "fps": _NUMBER}),
    _tool("frames", "Show single frames.", {"times": {"type": "array", "items": _NUMBER}}),
    _tool(
        "crop",
        "Show part of one frame, enlarged; box is [x1, y1, x2, y2] on a grid from 0 to 1000.",
        {"time": _NUMBER, "box": {"type": "array", "items": _NUMBER}},
    ),
)
"""The same requests as function tools, for rows that offer them."""


@dataclass(frozen=True, slots=True)
class ClipRequest:
    """Source frames with ``start <= time <= end`` (seconds), at most ``fps`` of them a second."""

    start: float
    end: float
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class FramesRequest:
    """The frames presented at each of ``times`` (seconds)."""

    times: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CropRequest:
    """A region of the frame presented at ``time``; ``box`` is (x1, y1, x2, y2) on the 0-1000 grid."""

    time: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request that cannot be met; ``advice`` is the sentence the model reads."""

    advice: str


Request = ClipRequest | FramesRequest | CropRequest | BadRequest


def function_calls(output: Iterable[Any]) -> list[Mapping[str, Any]]:
    """The function calls among the output items of a turn, in order."""
    return [item for item in output if isinstance(item, Mapping) and item.get("type") == "function_call"]


def read_call(call: Mapping[str, Any]) -> Request:
    """The request of one function call."""
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        return BadRequest("The tool call has no arguments.")
    return _read({call.get("name"): _parse(arguments)})


def read_text(text: str) -> Request | None:
    """The request in a turn's visible text, or None when there is none."""
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, max(end, 0))
    if end < 0 or start < 0:
        return None
    return _read(_parse(text[start + len(_OPEN) : end]))


def _parse(text: str) -> Any:
    if len(text) > _LIMIT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(value: Any) -> Request:
    if not isinstance(value, dict) or len(value) != 1:
        return BadRequest(
            "A request is one JSON object with one of clip, frames, crop, for example " + REQUEST_FORMS[0]
        )
    name, body = next(iter(value.items()))
    readers: dict[str, Callable[[Mapping[str, Any]], Request]] = {
        "clip": _read_clip,
        "frames": _read_frames,
        "crop": _read_crop,
    }
    if name not in readers:
        return BadRequest("There is no such request; ask for clip, frames or crop.")
    if not isinstance(body, dict):
        return BadRequest(f"The request {name} needs a JSON object, for example {_form(name)}")
    return readers[name](body)


def _form(name: str) -> str:
    return next(form for form in REQUEST_FORMS if f'"{name}"' in form)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(value: Any) -> tuple[float, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    numbers = tuple(_number(item) for item in value)
    found = tuple(number for number in numbers if number is not None)
    return found if found and len(found) == len(numbers) else None


def _read_clip(body: Mapping[str, Any]) -> Request:
    start, end = _number(body.get("start")), _number(body.get("end"))
    fps = _number(body["fps"]) if body.get("fps") is not None else None
    if start is None or end is None:
        return BadRequest(f"A clip needs start and end in seconds, for example {_form('clip')}")
    if body.get("fps") is not None and (fps is None or fps <= 0):
        return BadRequest("The fps of a clip must be a number above 0.")
    if end <= start:
        return BadRequest("The clip is empty: end must be later than start.")
    return ClipRequest(start, end, fps)


def _read_frames(body: Mapping[str, Any]) -> Request:
    times = _numbers(body.get("times"))
    if times is None:
        return BadRequest(f"Frames need a list of times in seconds, for example {_form('frames')}")
    return FramesRequest(times)


def _read_crop(body: Mapping[str, Any]) -> Request:
    time, box = _number(body.get("time")), _numbers(body.get("box"))
    if time is None or box is None or len(box) != 4:
        return BadRequest(f"A crop needs a time and a box, for example {_form('crop')}")
    x1, y1, x2, y2 = box
    if not (0 <= x1 < x2 <= 1000 and 0 <= y1 < y2 <= 1000):
        return BadRequest("The box of a crop is [x1, y1, x2, y2] from 0 to 1000 with x1 < x2 and y1 < y2.")
    return CropRequest(time, (x1, y1, x2, y2))
