# SPDX-License-Identifier: Apache-2.0
"""Follows a how-to page as its reader would: writes the files it shows, runs the commands it shows, in order.

A fenced block with ``title="NAME"`` is a file, relative to the reader's folder; ``append="NAME"`` goes to its
end. A ``console`` block holds commands (``$ `` before each; a backslash at a line's end continues it) and under
each what it prints. Shown output is compared line by line; ``…`` stands for any text within a line, and a line of
``…`` alone for any lines. Under a command without output anything may be printed. A command must succeed, unless
the first line under it is ``(exit code N)``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r'(title|append)="([^"]+)"')
_EXIT = re.compile(r"\(exit code (\d+)\)")


@dataclass(frozen=True, slots=True)
class File:
    """A file that the page shows; ``append`` adds to what is there."""

    path: str
    text: str
    append: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the output shown under it; None where none is shown."""

    words: str
    shown: tuple[str, ...] | None
    exit_code: int = 0


class PageIsWrong(AssertionError):
    """The page says something that does not happen."""


def steps(page: str) -> Iterator[File | Command]:
    """What a reader does, in order."""
    for language, tags, body in _FENCE.findall(page):
        place = _PLACE.search(tags)
        if place is not None:
            yield File(place[2], body, append=place[1] == "append")
        elif language == "console":
            yield from _commands(body)


def _commands(body: str) -> Iterator[Command]:
    for block in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", block)
        assert command is not None
        lines = block[command.end() :].splitlines()
        code = _EXIT.fullmatch(lines[0]) if lines else None
        lines = lines[1:] if code else lines
        yield Command(command[0].strip(), tuple(lines) or None, int(code[1]) if code else 0)


def follow(page: str, folder: Path) -> int:
    """Do every step in ``folder``; the number of commands run.

    Raises:
        PageIsWrong: a command fails, or prints something else than the page shows.
    """
    done = 0
    for step in steps(page):
        if isinstance(step, File):
            target = folder / step.path
            assert target.resolve().is_relative_to(folder.resolve())
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("a" if step.append else "w", encoding="utf-8") as file:
                file.write(step.text)
        else:
            _run(step, folder)
            done += 1
    return done


def _run(step: Command, folder: Path) -> None:
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
    }
    done = subprocess.run(
        ["bash", "-c", step.words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != step.exit_code:
        raise PageIsWrong(f"$ {step.words}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    if step.shown is not None and not matches(step.shown, done.stdout.rstrip().splitlines()):
        shown = "\n".join(step.shown)
        raise PageIsWrong(f"$ {step.words}\nthe page shows\n{shown}\nand it prints\n{done.stdout}{done.stderr}")


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether ``printed`` is what ``shown`` says, ``…`` being any text."""
    parts = [".*" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", "[^\n]*") for line in shown]
    text = "\n".join(line.rstrip() for line in printed)
    return re.fullmatch("\n".join(parts), text, flags=re.DOTALL) is not None
