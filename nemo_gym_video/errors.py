# SPDX-License-Identifier: Apache-2.0
"""The package's errors, each named after the boundary that failed.

Every message says what was wrong, what was got, what is allowed, and where, in one line, so that it can be
printed to a person, written as one JSON value, or grouped in a log by its class.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

_GOT_LIMIT = 200
_SHORT = reprlib.Repr(maxlevel=4, maxdict=8, maxlist=16, maxtuple=16, maxstring=200, maxlong=80, maxother=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in the user's input. Every field is optional; ``str`` names those that are set.

    ``line`` counts from 1 as editors do; ``row``, ``message``, ``part``, ``turn`` and ``item`` count from 0 as
    the JSON they point into.
    """

    file: str | None = None
    line: int | None = None
    row: int | None = None
    message: int | None = None
    part: int | None = None
    turn: int | None = None
    item: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        """Render as ``rows.jsonl:3, message 0, part 2``."""
        words = [self.file if self.line is None else f"{self.file or 'line'}:{self.line}"]
        for name in ("row", "message", "part", "turn", "item"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name} {value}")
        if self.field is not None:
            words.append(f"field {self.field!r}")
        return ", ".join(word for word in words if word)


def _shown(got: object) -> str:
    """``repr`` cut short, for any value: a long one costs no time, one too deep or too big to print is named."""
    try:
        shown = _SHORT.repr(got)
    except (ValueError, RecursionError):
        shown = f"<{type(got).__name__}>"
    return shown if len(shown) <= _GOT_LIMIT else shown[:_GOT_LIMIT] + "…"


class NemoGymVideoError(Exception):
    """Base of every error this package raises on purpose."""

    def __init__(
        self,
        problem: str,
        *,
        got: object = None,
        allowed: str | None = None,
        where: Where | str | None = None,
    ) -> None:
        """Build the one-line message from its parts; ``got`` is shortened to 200 characters."""
        self.problem = problem
        self.got = got
        self.allowed = allowed
        self.where = where
        text = problem
        if got is not None:
            text += f"; got {_shown(got)}"
        if allowed is not None:
            text += f"; allowed: {allowed}"
        if where is not None and str(where):
            text = f"{where}: {text}"
        super().__init__(" ".join(text.splitlines()))


class RowError(NemoGymVideoError):
    """The dataset row is malformed; the data's fault, never the policy's."""


class MediaSourceError(NemoGymVideoError):
    """The source policy refuses to open this media reference."""


class MediaDecodeError(NemoGymVideoError):
    """The media was opened but its content cannot be used (broken, empty, over a limit)."""


class ProcessorSettingsError(NemoGymVideoError):
    """Processor settings are unknown, mistyped or out of range."""


class ContractError(NemoGymVideoError):
    """A row contract is malformed or does not belong to the messages it rides with."""


class AlignmentError(NemoGymVideoError):
    """Token sequences and media cannot be brought together without a guess."""


class PreparationError(NemoGymVideoError):
    """A dataset preparation job cannot go on as configured."""


class ServerStartError(NemoGymVideoError):
    """A Gym server could not be started; its last lines are in the message."""
