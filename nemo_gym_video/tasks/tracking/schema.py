# SPDX-License-Identifier: Apache-2.0
"""The published JSON Schema of each task's answer, and the keys that the tasks use."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

Task = Literal["pt", "box", "ref"]
TASKS: tuple[str, ...] = get_args(Task)

ID_KEYS: dict[str, str] = {"pt": "point", "box": "box", "ref": "id"}
LOCATION_KEYS: dict[str, str] = {"pt": "xy", "box": "bbox", "ref": "xy"}
MAX_ENTRIES = 100_000


def answer_schema(task: Task) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an answer to ``task``, for prompts and structured output.

    ``x-ordered`` on a box is an annotation to any standard validator; ``answer_validator`` enforces it.
    """
    return copy.deepcopy(_load(task))


@cache
def answer_validator(task: Task) -> Any:
    """A ``jsonschema`` validator that accepts exactly the answers that the ``strict`` parser accepts."""
    from jsonschema import Draft202012Validator, ValidationError, validators  # start-up: scoring needs none

    def ordered(_: Any, pairs: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list):
            for low, high in pairs:
                numbers = [instance[place] for place in (low, high) if place < len(instance)]
                if all(isinstance(number, int | float) for number in numbers) and numbers != sorted(set(numbers)):
                    yield ValidationError(f"{numbers} are not in order")

    return validators.extend(Draft202012Validator, {"x-ordered": ordered})(_load(task))


@cache
def _load(task: Task) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("schemas", f"{task}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
