# SPDX-License-Identifier: Apache-2.0
"""Turns what a pydantic model refuses into this package's sentences: which field, what was got, what is allowed.

Models state the rules of rows, contracts and settings; ``problems_of`` reads a ``ValidationError`` as one
``Problem`` for each field that does not fit, and ``row_errors`` makes ``RowError`` of them. A validator that has
something to say itself raises what ``refusal`` or ``carried`` makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from nemo_gym_video.errors import NemoGymVideoError, RowError, Where

_ALLOWED = re.compile(r"^[A-Z]\w*(?: \w+)? (?:should|must) (?:be |have )?(.*?)(?: after validation, not \d+)?$")
# pydantic's names of Python types, in the words of JSON.
_JSON_WORDS = {
    "a valid dictionary or instance of": "an object",
    "a valid dictionary": "an object",
    "a valid list": "a list",
    "a valid tuple": "a list",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid string": "a string",
    "a valid boolean": "true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that does not fit: the field's path (``objects[0].id``), a sentence, and the error behind it."""

    field: str
    sentence: str
    got: object = None
    allowed: str | None = None
    cause: NemoGymVideoError | None = None


def refusal(sentence: str = "", *, allowed: str = "", field: str = "", got: object = ...) -> PydanticCustomError:
    """What a validator raises: ``sentence`` (default "<field> does not fit") about ``field`` below its own place.

    ``got`` defaults to the validator's input.
    """
    return PydanticCustomError("refusal", "{sentence}",
                               {"sentence": sentence, "allowed": allowed, "field": field, "got": got})  # fmt: skip


def carried(error: NemoGymVideoError) -> PydanticCustomError:
    """What a validator raises for an error of this package, so that it keeps its words and its place."""
    return PydanticCustomError("refusal", "{sentence}", {"sentence": str(error), "error": error})


def raise_all(refusals: Sequence[PydanticCustomError], got: object) -> None:
    """Raise every one of ``refusals`` in one go from a validator whose input is ``got``; nothing for none."""
    if refusals:
        details = [InitErrorDetails(type=entry, loc=(), input=got) for entry in refusals]
        raise ValidationError.from_exception_data("value", details)


def path_of(steps: Sequence[int | str], below: str = "") -> str:
    """``("objects", 0, "id")`` as ``objects[0].id``."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    path += below if below.startswith("[") or not below else f".{below}"
    return path.removeprefix(".")


def problems_of(error: ValidationError, *, root: str = "value") -> list[Problem]:
    """Every problem in the order of the model's fields; never empty. ``root`` names the whole in a sentence."""
    found = error.errors(include_url=False)
    # pydantic counts only the sound entries of a list: a list that lacks one for that reason is told by the entry.
    told = {details["loc"][:depth] for details in found for depth in range(len(details["loc"]))}
    return [
        _problem(details, root)
        for details in found
        if details["type"] != "too_short" or details["loc"] not in told
    ]


def row_errors(error: ValidationError, where: Where | None = None) -> list[RowError]:
    """One ``RowError`` for each problem, placed at its field."""
    place = where or Where()
    found = []
    for problem in problems_of(error, root="row"):
        at = replace(place, field=problem.field or place.field)
        inner = None if problem.cause is None else problem.cause.where
        if isinstance(inner, Where) and inner.message is not None:
            at = replace(place, message=inner.message, part=inner.part, field=inner.field)
        found.append(RowError(problem.sentence, got=problem.got, allowed=problem.allowed, where=at))
    return found


def _problem(details: ErrorDetails, root: str) -> Problem:
    context = details.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, NemoGymVideoError):
        return Problem(field=path_of(details["loc"]), sentence=cause.problem, got=cause.got,
                       allowed=cause.allowed, cause=cause)  # fmt: skip
    field = path_of(details["loc"], context.get("field", "") if details["type"] == "refusal" else "")
    name = field.rpartition(".")[2] or root
    if details["type"] == "missing":
        return Problem(field=field, sentence=f"{name} is missing")
    got = details["input"]
    if details["type"] == "refusal":
        got = got if context["got"] is ... else context["got"]
        sentence, allowed = context["sentence"] or f"{name} does not fit", context["allowed"] or None
    elif details["type"] == "extra_forbidden":
        sentence, allowed, got = f"{name} is unknown", None, name
    else:
        sentence, allowed = f"{name} does not fit", _allowed(details["msg"])
    return Problem(field=field, sentence=sentence, got="null" if got is None else got, allowed=allowed)


def _allowed(message: str) -> str:
    """What is allowed, out of pydantic's own sentence (*Input should be a valid integer*)."""
    found = _ALLOWED.match(message)
    allowed = message if found is None else found[1]
    for words, plain in _JSON_WORDS.items():
        if allowed.startswith(words):
            return plain
    return allowed


class ClosedModel(BaseModel):
    """A frozen model without further fields; null counts as absent, and an unknown name is told the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _known_and_given(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        if not isinstance(value, Mapping):
            return handler(value)
        known = cls.model_fields
        for name in value:
            if name not in known:
                raise refusal(f"{name} is unknown", field=str(name), got=str(name), allowed=", ".join(known))
        return handler({name: entry for name, entry in value.items() if entry is not None})
