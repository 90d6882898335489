# SPDX-License-Identifier: Apache-2.0
"""What the overview pages say about the tree is what the tree is."""

from __future__ import annotations

import re
import tomllib

import nemo_gym_video
from nemo_gym_video._moved import REMOVED_IN
from tests.structure.tree import FLOORS, ROOT, floor_of, graph

DOCS = ROOT / "docs"
PAGES = {page.name for page in (*DOCS.glob("*.md"), *DOCS.glob("howto/*.md"))}


def floors_of_the_picture(text: str) -> list[str]:
    """First words of the lines of the first text block, from the ground up, without the rule across it."""
    (picture, *_) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    words = [line.split()[0].removesuffix("/") for line in picture.splitlines() if line.strip()]
    return [word for word in reversed(words) if not word.startswith("─")]


def test_the_picture_has_the_floors_in_their_order() -> None:
    inhabited = {floor_of(name) for name in graph()}
    text = (DOCS / "architecture.md").read_text("utf-8")
    assert floors_of_the_picture(text) == [floor for floor in FLOORS if floor in inhabited]


def test_a_floor_at_the_wrong_place_is_seen() -> None:
    assert floors_of_the_picture("```text\n cli  x\n ── a rule ──\n media/ y\n errors z\n```") == [
        "errors",
        "media",
        "cli",
    ]


def test_the_index_leads_to_every_page() -> None:
    text = (DOCS / "index.md").read_text("utf-8")
    linked = {link.split("#")[0].rpartition("/")[2] for link in re.findall(r"\]\(([^)]+)\)", text)}
    assert PAGES - linked - {"index.md"} == set()


def test_the_version_is_one_and_has_its_entry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == nemo_gym_video.__version__
    (first, *_) = re.findall(r"^## (\d+\.\d+\.\d+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert first == nemo_gym_video.__version__


def test_old_names_go_in_the_version_after_this_one() -> None:
    major, minor, _ = nemo_gym_video.__version__.split(".")
    assert f"{major}.{int(minor) + 1}" == REMOVED_IN
