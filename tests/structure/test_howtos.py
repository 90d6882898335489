# SPDX-License-Identifier: Apache-2.0
"""Every how-to is followed as its reader would, file by file and command by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.howto import ROOT, Command, File, PageIsWrong, follow, matches, steps

PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
# Pages whose commands start Gym's servers.
WITH_SERVERS = ("add_a_task", "add_a_multi_turn_environment")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.servers] if page.stem in WITH_SERVERS else [])
        for page in PAGES
    ],
)
def test_the_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    assert any(isinstance(step, File) for step in steps(text))
    assert follow(text, tmp_path) >= 2


PAGE = """
Write it:

```python title="deep/add.py"
print(1 + 1)
```

```python append="deep/add.py"
print("three:", 3)
```

```console
$ python deep/add.py
2
three: …
$ python -c 'raise SystemExit(3)'
(exit code 3)
```
"""


def test_a_page_is_followed_in_order(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path) == 2
    assert (tmp_path / "deep" / "add.py").read_text() == 'print(1 + 1)\nprint("three:", 3)\n'


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("2\nthree", "4\nthree"),
        ("(exit code 3)", "(exit code 4)"),
        ("SystemExit(3)'\n(exit code 3)", "SystemExit(3)'"),
        ("print(1 + 1)", "print(1 +"),
        ("three: …\n", ""),
    ],
)
def test_a_page_that_is_wrong_is_seen(right: str, wrong: str, tmp_path: Path) -> None:
    assert right in PAGE
    with pytest.raises(PageIsWrong):
        follow(PAGE.replace(right, wrong), tmp_path)


def test_a_command_may_go_on_over_lines() -> None:
    (step,) = steps("```console\n$ echo a \\\n    b\na b\n```\n")
    assert step == Command("echo a \\\n    b", ("a b",))


def test_an_ellipsis_is_any_text_of_a_line_and_a_line_of_it_any_lines() -> None:
    assert matches(["a … c"], ["a b c"])
    assert not matches(["a … c"], ["a b", "c"])
    assert matches(["a", "…", "z"], ["a", "b", "c", "z"])
    assert not matches(["a"], ["a", "b"])
