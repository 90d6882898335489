# SPDX-License-Identifier: Apache-2.0
"""Codes: one table that has every class and raise site, and nothing that nobody raises; the page made of it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import nemo_gym_video
from nemo_gym_video import errors
from nemo_gym_video.commands.troubleshooting import troubleshooting_page
from nemo_gym_video.errors import (
    ERROR_CODES,
    MediaDecodeError,
    NemoGymVideoError,
    RowError,
    ServerStartError,
    Where,
)

PACKAGE = Path(errors.__file__).parent
PAGE = PACKAGE.parent / "docs" / "troubleshooting.md"
_OPTIONAL = {"ray", "transformers"}


def _subclasses(kind: type[NemoGymVideoError]) -> set[type[NemoGymVideoError]]:
    found = set(kind.__subclasses__())
    return found.union(*(_subclasses(one) for one in found))


def _import_everything() -> None:
    for module in pkgutil.walk_packages(nemo_gym_video.__path__, "nemo_gym_video."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            if error.name not in _OPTIONAL:
                raise


def _named_codes(source: str) -> set[str]:
    """The codes that a module's text holds as string literals, and the keyword literals that should be codes."""
    tree = ast.parse(source)
    literals = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is str
    }
    return {text for text in literals if re.fullmatch(r"[a-z]+(\.[a-z_]+)", text)}


def _error_code_keywords(source: str) -> set[str]:
    """Literals of ``code=`` in calls of anything that makes an error."""
    return {
        keyword.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "code"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    }


def _sources() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path.name != "errors.py"]


def test_every_class_has_a_code_of_the_table_and_one_of_its_own() -> None:
    _import_everything()
    classes = _subclasses(NemoGymVideoError)
    assert len(classes) >= 14
    assert {one.__name__ for one in classes if one.code not in ERROR_CODES} == set()
    # Inheriting a code is allowed only from a class that says something.
    assert {one.__name__ for one in classes if one.code == NemoGymVideoError.code} == set()


def test_a_class_without_a_known_code_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"unknown error code 'media\.nonsense'"):
        type("Nonsense", (NemoGymVideoError,), {"code": "media.nonsense"})


def test_an_unknown_code_cannot_be_raised() -> None:
    with pytest.raises(ValueError, match="unknown error code"):
        RowError("x", code="row.nonsense")


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_code_at_a_raise_site_is_in_the_table(path: Path) -> None:
    assert _error_code_keywords(path.read_text("utf-8")) - set(ERROR_CODES) == set()


def test_a_code_that_is_not_in_the_table_is_seen() -> None:
    assert _error_code_keywords('raise RowError("x", code="row.nonsense")') - set(ERROR_CODES) == {"row.nonsense"}


def test_every_code_is_used() -> None:
    used = set().union(*(_named_codes(path.read_text("utf-8")) for path in _sources()))
    used |= {one.code for one in _subclasses(NemoGymVideoError)}
    assert set(ERROR_CODES) - used - {NemoGymVideoError.code} == set()


def test_codes_are_words_and_meanings_are_sentences() -> None:
    for code, (meaning, remedy) in ERROR_CODES.items():
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", code)
        assert re.fullmatch(r"[A-Z].*\.", meaning), code
        assert "|" not in meaning + remedy, code


def test_the_page_is_what_the_code_gives() -> None:
    assert PAGE.read_text("utf-8") == troubleshooting_page()


def test_the_page_names_every_code_once() -> None:
    rows = re.findall(r"^\| `([a-z._]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(ERROR_CODES)


def test_a_message_in_full() -> None:
    error = RowError("size is unknown", got=3, allowed="1 or 2", where=Where(file="a.jsonl", line=2),
                     code="row.json", remedy="write 1")  # fmt: skip
    assert str(error) == "a.jsonl:2: size is unknown; got 3; allowed: 1 or 2; to fix: write 1"
    assert (error.code, RowError("x").code, RowError.code) == ("row.json", "row.invalid", "row.invalid")


def test_the_same_error_of_another_place() -> None:
    first = MediaDecodeError("too big", got=9, code="media.too_large", remedy="shrink it", where=Where(row=1))
    second = first.at(Where(row=2))
    assert (type(second), second.code, second.got) == (MediaDecodeError, "media.too_large", 9)
    assert str(second) == "row 2: too big; got 9; to fix: shrink it"
    assert str(first) == "row 1: too big; got 9; to fix: shrink it"


def test_lines_of_a_log_follow_the_message() -> None:
    error = ServerStartError("server a ended", lines=["Traceback", "ValueError: x"], code="server.ended")
    assert str(error) == "server a ended\n    Traceback\n    ValueError: x"
    assert error.problem == "server a ended"
