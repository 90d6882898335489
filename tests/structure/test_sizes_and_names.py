# SPDX-License-Identifier: Apache-2.0
"""Names that mean one thing, files and functions that can be read at a sitting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.structure.tree import dotted, function_lengths, modules, public_classes, quantile

MEDIAN_FILE = 150
LONGEST_FILE = 500
NINE_OF_TEN_FUNCTIONS = 45
# Names that Python itself gives a meaning.
SPECIAL = ("__init__", "__main__")


def shared(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that stand in more than one place, with the places."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in named:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def line_counts(paths: Iterable[Path]) -> dict[str, int]:
    return {dotted(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}


def test_base_names_of_modules_are_unique() -> None:
    assert shared((path.stem, dotted(path)) for path in modules() if path.stem not in SPECIAL) == {}


def test_names_of_public_classes_are_unique() -> None:
    assert shared((name, dotted(path)) for path in modules() for name in public_classes(path)) == {}


def test_a_shared_name_is_seen(tmp_path: Path) -> None:
    source = "class Plan: ...\nclass _Own: ...\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(source)
    found = shared((name, path.stem) for path in sorted(tmp_path.glob("*.py")) for name in public_classes(path))
    assert found == {"Plan": ["one", "two"]}


def test_files_are_short() -> None:
    counts = line_counts(modules())
    assert quantile(counts.values(), 0.5) < MEDIAN_FILE
    assert {name: count for name, count in counts.items() if count > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    lengths = [length for path in modules() for length, _ in function_lengths(path)]
    assert quantile(lengths, 0.9) < NINE_OF_TEN_FUNCTIONS


def test_a_long_function_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("@cache\ndef far(x):\n" + "    x += 1\n" * 50 + "\n\nclass A:\n    def near(self): ...\n")
    assert sorted(function_lengths(path)) == [(1, "long.py:near"), (52, "long.py:far")]


def test_the_quantile_is_that_of_the_sorted_values() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(1, 11), 0.9) == 9.1
    assert quantile([1] * 9 + [100], 0.9) > 10
