# SPDX-License-Identifier: Apache-2.0
"""``gym-video validate``: everything that is wrong with the rows of a file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import open_lines, parse_object
from nemo_gym_video.commands.task_choice import TaskChoice, TaskOption
from nemo_gym_video.errors import NemoGymVideoError, RowError, Where

if TYPE_CHECKING:
    from nemo_gym_video.commands.media_check import MediaCheck

Problems = list[NemoGymVideoError]
Check = Callable[[Mapping[str, Any], Where], Problems]
"""Everything that one check finds wrong with one row; raises nothing."""


def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Rows, one a line; - is stdin.")],
    media: Annotated[bool, typer.Option("--media", help="Open every media file that the rows name.")] = False,
    media_root: Annotated[
        list[Path] | None, typer.Option(help="Folder that media may come from, besides the rows' own; repeatable.")
    ] = None,
    task: TaskOption = None,
) -> None:
    """List every problem of every row, with line numbers; exit code 1 when there is one.

    Rows are checked by the task that scores them, which is told by their fields or by --task. With --media every
    file is opened and decoded, in a child process.
    """
    tasks = TaskChoice(task or ())
    rows: Counter[str] = Counter()
    bad = 0
    for file in files:
        opened = _media_check(file, media_root or []) if media else None
        checks: list[Check] = [opened] if opened else []
        with open_lines(file) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where = Where(file="stdin" if file == "-" else file, line=number)
                kind, problems = check_line(line, where, tasks, checks)
                rows[kind] += 1
                bad += bool(problems)
                for problem in problems:
                    print(str(problem).encode("utf-8", "backslashreplace").decode())
        if opened is not None:
            _tell_media(opened)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(rows.items()))
    print(f"{sum(rows.values())} rows ({kinds or 'none'}), {bad} with problems", file=sys.stderr)
    if bad or not rows:
        raise typer.Exit(1)


def _media_check(file: str, roots: list[Path]) -> MediaCheck:
    # start-up: PyAV is loaded only when media are to be opened.
    from nemo_gym_video.commands.media_check import MediaCheck
    from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
    from nemo_gym_video.media.sources import MediaSources

    own = [] if file == "-" else [Path(file).absolute().parent]
    limits = MediaLimits()
    return MediaCheck(MediaSources(SourcePolicy(roots=(*own, *roots), limits=limits)), limits=limits)


def _tell_media(check: MediaCheck) -> None:
    check.close()
    notes = ", ".join(f"{count} {note}" for note, count in sorted(check.notes.items()))
    print(f"{check.opened} media files opened" + (f" ({notes})" if notes else ""), file=sys.stderr)


def check_line(line: str, where: Where, tasks: TaskChoice, checks: list[Check]) -> tuple[str, Problems]:
    """The task of the row on one line, and everything that the task and ``checks`` find wrong with it."""
    try:
        row = parse_object(line, where)
    except RowError as error:
        return "unreadable", [error]
    problems: Problems = []
    try:
        task = tasks.of(row, where)
        name = task.name
        problems += task.row_problems(row, where)
    except RowError as error:
        name = "unknown"
        problems.append(error)
    return name, [*problems, *(problem for check in checks for problem in check(row, where))]
