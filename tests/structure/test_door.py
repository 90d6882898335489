# SPDX-License-Identifier: Apache-2.0
"""The door: every public name loads lazily, is known to type checkers, and shows in an example how it is used."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nemo_gym_video

ROOT = Path(__file__).resolve().parents[2]
DOOR = ROOT / "nemo_gym_video" / "__init__.py"
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def examples(thing: object) -> doctest.DocTest | None:
    """The ``>>>`` lines of the docstring of ``thing`` itself (not of its members), or None."""
    text = inspect.getdoc(thing) or ""
    found = doctest.DocTestParser().get_doctest(text, {}, getattr(thing, "__name__", "door"), None, 0)
    return found if found.examples else None


def failures(test: doctest.DocTest) -> str:
    """What a run of the examples prints where they do not hold; empty when they do."""
    said: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    return "".join(said)


def imported_for_type_checkers() -> dict[str, str]:
    """Name to module of the imports under ``TYPE_CHECKING``."""
    block = next(
        node
        for node in ast.parse(DOOR.read_text("utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    return {
        alias.asname or alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_table_and_type_checkers_agree() -> None:
    table = {name: f"nemo_gym_video.{module}" for name, module in nemo_gym_video._DEFINED_IN.items()}
    assert sorted(table) == sorted(nemo_gym_video.__all__)
    assert imported_for_type_checkers() == table


@pytest.mark.parametrize("name", nemo_gym_video.__all__)
def test_a_name_is_that_of_its_module(name: str) -> None:
    module = f"nemo_gym_video.{nemo_gym_video._DEFINED_IN[name]}"
    found = getattr(nemo_gym_video, name)
    assert found is getattr(importlib.import_module(module), name)
    assert found.__module__ == module, "the table names the module that defines it"


@pytest.mark.parametrize("name", nemo_gym_video.__all__)
def test_a_name_has_an_example_that_runs(name: str) -> None:
    test = examples(getattr(nemo_gym_video, name))
    assert test is not None
    assert any(re.search(rf"\b{name}\b", example.source + example.want) for example in test.examples)
    assert failures(test) == ""


def test_the_doors_own_example_runs() -> None:
    test = examples(nemo_gym_video)
    assert test is not None
    assert failures(test) == ""


def test_an_example_that_does_not_hold_is_seen() -> None:
    def wrong() -> None:
        """Add.

        >>> 1 + 1
        3
        """

    def silent() -> None:
        """Nothing to see."""

    test = examples(wrong)
    assert test is not None
    assert "Expected:\n    3\nGot:\n    2" in failures(test)
    assert examples(silent) is None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(nemo_gym_video, "no_such_" + "name")
    assert set(nemo_gym_video.__all__) <= set(dir(nemo_gym_video))


def test_the_import_loads_nothing() -> None:
    code = (
        "import sys, nemo_gym_video; nemo_gym_video.__all__\n"
        "print(sorted(name for name in sys.modules if name.startswith('nemo_gym_video.')))\n"
        "nemo_gym_video.MediaSize\n"
        "print('nemo_gym_video.processors.regions' in sys.modules, 'numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['nemo_gym_video._moved']", "True False"]
