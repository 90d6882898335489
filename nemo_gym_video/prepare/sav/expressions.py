# SPDX-License-Identifier: Apache-2.0
"""Reads the words of text-referred sets (Ref-SAV and the like): which expression refers to which object.

Three forms are read: a list of ``{"video_id", "object_id", "expression"}``; an object of objects
``{video: {object: text}}``; and ``{"videos": {video: {"expressions": {id: {"exp": text, "obj_id": [n]}}}}}``, the
form of the video-referring benchmarks. An object with several texts keeps the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import PreparationError, Where

Expressions = dict[str, dict[int, str]]
"""Text by masklet id by video id."""


def read_expressions(path: Path) -> Expressions:
    """Read a file of expressions.

    Raises:
        PreparationError: no such file, no JSON, or an entry without video, object and text.
    """
    where = Where(file=str(path))
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PreparationError(f"expressions cannot be read ({error})"[:300], where=where) from error
    found: Expressions = {}
    for place, (video, number, text) in enumerate(_entries(body, where)):
        if not isinstance(video, str) or not isinstance(text, str) or not text.strip():
            raise PreparationError("expression entry lacks video or text", got=[video, number, text],
                                   where=Where(file=str(path), row=place))  # fmt: skip
        try:
            key = int(number)
        except (TypeError, ValueError):
            raise PreparationError("expression's object id is no integer", got=number,
                                   where=Where(file=str(path), row=place)) from None  # fmt: skip
        found.setdefault(video, {}).setdefault(key, " ".join(text.split()))
    return found


def _entries(body: Any, where: Where) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(body, list):
        for entry in body:
            fields = entry if isinstance(entry, dict) else {}
            yield fields.get("video_id"), fields.get("object_id"), fields.get("expression")
        return
    if not isinstance(body, dict):
        raise PreparationError("expressions are neither a list nor an object", where=where)
    videos = body.get("videos")
    if isinstance(videos, dict):
        for video, entry in videos.items():
            expressions = entry.get("expressions") if isinstance(entry, dict) else None
            for fields in expressions.values() if isinstance(expressions, dict) else ():
                numbers = fields.get("obj_id") if isinstance(fields, dict) else None
                for number in numbers if isinstance(numbers, list) else [numbers]:
                    yield video, number, fields.get("exp") if isinstance(fields, dict) else None
        return
    for video, objects in body.items():
        for number, text in objects.items() if isinstance(objects, dict) else [(None, None)]:
            yield video, number, text[0] if isinstance(text, list) and text else text
