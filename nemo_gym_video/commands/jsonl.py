# SPDX-License-Identifier: Apache-2.0
"""One JSON object a line in, one out, in order: what the ``--jsonl`` commands share."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nemo_gym_video.errors import NemoGymVideoError, RowError, Where


@contextmanager
def open_lines(source: str) -> Iterator[IO[str]]:
    """Open ``source`` for reading as UTF-8 text; ``-`` is standard input."""
    if source == "-":
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        yield sys.stdin
        return
    path = Path(source)
    if not path.is_file():
        raise RowError("input file does not exist or is no regular file", code="row.file", got=source)
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        yield lines


def parse_object(line: str, where: Where) -> dict[str, Any]:
    """Parse one line as a JSON object; anything else is a ``RowError`` naming the place."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowError(f"not valid JSON ({error})"[:300], code="row.json", where=where) from error
    if not isinstance(value, dict):
        raise RowError(
            "not a JSON object",
            code="row.json",
            got=type(value).__name__,
            allowed="one object a line",
            where=where,
        )
    return value


def answer_lines(
    source: str, handle: Callable[[dict[str, Any], Where], dict[str, Any]], *, out: IO[str] | None = None
) -> int:
    """Answer every non-empty line of ``source`` with ``handle`` and return the exit code (1 after any error).

    A line that fails becomes ``{"error": "…", "code": "…"}`` in its place and the rest goes on.
    """
    out = _utf8_stdout() if out is None else out
    failed = False
    name = "stdin" if source == "-" else source
    with open_lines(source) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = Where(file=name, line=number)
            try:
                answer = handle(parse_object(line, where), where)
            except NemoGymVideoError as error:
                failed = True
                answer = {"error": str(error), "code": error.code}
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
    out.flush()
    return int(failed)


def _utf8_stdout() -> IO[str]:
    """Standard output in UTF-8 whatever the locale; half a surrogate pair is written as a JSON escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
