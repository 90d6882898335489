# SPDX-License-Identifier: Apache-2.0
"""What the pages say exists: files that are linked, commands and flags that are shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from nemo_gym_video.cli import COMMANDS, build_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/*/README.md")])
PAGES = [page for page in PAGES if ".venv" not in page.parts and not page.parent.parent.is_symlink()]

LINK = re.compile(r"\]\(([^)#\s]+)\)")
BLOCK = re.compile(r"```(?:bash|sh|console)\n(.*?)```", re.DOTALL)


def links(page: Path) -> list[str]:
    found = LINK.findall(page.read_text("utf-8"))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def shown_commands(page: Path) -> list[list[str]]:
    """Every ``gym-video …`` line of the shell blocks, continuation lines joined, comments dropped."""
    shown = []
    for block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&|;", line.removeprefix("$ ")):
                words = shlex.split(part, comments=True) if part.strip().startswith("gym-video") else []
                if words and words[0] == "gym-video":
                    shown.append(words[1:])
    return shown


def flags_of(command: list[str]) -> set[str]:
    """The options that a command, named by its leading words, takes."""
    found = typer.main.get_command(build_app(command[0]))
    for word in command:
        children = getattr(found, "commands", {})
        if word not in children:
            break
        found = children[word]
    return {flag for parameter in found.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_commands_and_flags_exist(page: Path) -> None:
    for words in shown_commands(page):
        assert words, page
        assert words[0] in COMMANDS or words[0] == "--help", words
        flags = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
        assert flags <= flags_of(words), (words, sorted(flags - flags_of(words)))


def test_a_flag_that_does_not_exist_is_seen() -> None:
    assert "--no-such-flag" not in flags_of(["prepare", "sav"])
    assert "--resume" in flags_of(["prepare", "sav"])


def test_the_readme_names_every_environment() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for config in (ROOT / "environments").glob("*/config.yaml"):
        name = config.parent.name
        assert name in text, name
        assert (config.parent / "README.md").is_file(), name
