# SPDX-License-Identifier: Apache-2.0
"""Who may import whom: floors, circles, servers, and imports inside functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.tree import (
    FLOORS,
    Graph,
    circles,
    dotted,
    floor_of,
    graph,
    imports,
    imports_of,
    longest,
    modules,
    rooms,
)

SERVER_PACKAGES = {"fastapi", "nemo_gym"}
SERVER_FLOORS = ("servers", "launch", "commands", "cli")
# Why an import may stand inside a function: an optional extra, or start-up time. A circle is no reason.
REASONS = ("start-up:", "extra:")


def upward(edges: Graph) -> list[tuple[str, str]]:
    """Imports of a module by one on a floor below it."""
    return sorted(
        (module, target)
        for module, targets in edges.items()
        for target in targets
        if FLOORS.index(floor_of(target)) > FLOORS.index(floor_of(module))
    )


def unexplained(text: str) -> list[str]:
    """Imports inside functions that do not say by which of REASONS they stand there."""
    return [
        f"line {one.line}: {', '.join(one.names)}"
        for one in imports_of(text)
        if one.in_function and not one.comment.startswith(REASONS)
    ]


def test_every_module_is_on_a_floor() -> None:
    assert [name for name in graph() if floor_of(name) not in FLOORS] == []


def test_imports_point_down() -> None:
    assert upward(graph()) == []


def test_an_upward_import_is_seen() -> None:
    edges = {"media.video": frozenset({"alignment.runs", "errors"}), "errors": frozenset()}
    assert upward(edges) == [("media.video", "alignment.runs")]


def test_no_circle_between_modules() -> None:
    """Imports inside functions and for type checkers count: moving one into a function opens no circle."""
    assert circles(graph()) == []


def test_no_circle_between_rooms() -> None:
    """Rooms are the floors, and the folders that stand side by side inside one.

    A folder's own files and the folders in it are one room seen from outside; inside, modules make no circle.
    """
    names = graph()
    assert circles(rooms(names, {name: floor_of(name) for name in names})) == []
    for parent in sorted({name.rpartition(".")[0] for name in names} - {""}):
        assert circles(side_by_side(names, parent)) == [], parent


def side_by_side(edges: Graph, parent: str) -> dict[str, frozenset[str]]:
    """The graph of the folders in ``parent``."""
    room_of = {
        name: name.removeprefix(f"{parent}.").split(".")[0]
        for name in edges
        if name.startswith(f"{parent}.") and "." in name.removeprefix(f"{parent}.")
    }
    inner = {name: edges[name] & room_of.keys() for name in room_of}
    return rooms(inner, room_of)


def test_few_rooms_and_arrows() -> None:
    names = graph()
    floors = rooms(names, {name: floor_of(name) for name in names})
    assert len(floors) < 24
    assert sum(map(len, floors.values())) < 75


def test_a_circle_is_seen() -> None:
    edges = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert circles(edges) == [["a", "b", "c"]]
    assert circles({"a": frozenset({"b"}), "b": frozenset()}) == []


def test_a_circle_between_rooms_is_seen_where_modules_have_none() -> None:
    edges = {
        "p.a.one": frozenset({"p.b.one"}),
        "p.b.one": frozenset({"p.base"}),
        "p.b.two": frozenset({"p.a.two"}),
        "p.a.two": frozenset(),
        "p.base": frozenset(),
    }
    assert circles(edges) == []
    assert circles(side_by_side(edges, "p")) == [["a", "b"]]


def test_an_import_names_the_module_it_reaches() -> None:
    known = {"processors", "processors.families", "processors.families.base", "errors"}
    assert longest("processors.families.base.ProcessorSettings", known) == "processors.families.base"
    assert longest("errors.RowError", known) == "errors"
    assert longest("nowhere.at_all", known) is None


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_only_the_top_floors_know_the_servers(path: Path) -> None:
    if floor_of(dotted(path)) not in SERVER_FLOORS:
        known = {name.split(".")[0] for one in imports(path) for name in one.names}
        assert known & SERVER_PACKAGES == set()


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_inside_functions_say_why(path: Path) -> None:
    assert unexplained(path.read_text(encoding="utf-8")) == []


def test_an_import_inside_a_function_that_does_not_say_why_is_seen() -> None:
    source = (
        "import os\n"
        "def decode():\n"
        "    import av\n"
        "def show():\n"
        "    import cv2  # extra: baseline\n"
        "def start():\n"
        "    # start-up: half a second\n"
        "    import numpy\n"
        "    import scipy\n"
        "    x = 1\n"
        "    import pandas\n"
        "def back():\n"
        "    import left  # cycle: left imports this\n"
    )
    assert unexplained(source) == ["line 3: av", "line 11: pandas", "line 13: left"]
