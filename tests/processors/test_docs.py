# SPDX-License-Identifier: Apache-2.0
"""What ``docs/processors.md`` shows is what happens."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.processors import families

PAGE = (Path(__file__).parents[2] / "docs/processors.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n\$ ([^\n]+)\n(.*?)```", PAGE, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "expected"), CONSOLE)
def test_every_command_prints_what_the_page_shows(command: str, expected: str) -> None:
    head, _, rest = command.rpartition(" | ")
    stdin = shlex.split(head)[1] + "\n" if head else ""
    arguments = shlex.split(rest)[1:]
    result = CliRunner().invoke(build_app(arguments[0]), arguments, input=stdin, env={"COLUMNS": "80"})
    assert result.exit_code == 0
    shown = [line.rstrip() for line in result.stdout.splitlines()]
    wanted = expected.splitlines()
    if "FINGERPRINT" in expected:
        shown, wanted = ([re.sub(r"sha256:\w+", "sha256:…", line) for line in lines] for lines in (shown, wanted))
    assert shown == wanted


def test_the_page_has_its_examples() -> None:
    assert len(CONSOLE) == 6
    assert len(PYTHON) == 3


@pytest.mark.parametrize("example", PYTHON[:2])
def test_the_first_python_examples_hold(example: str) -> None:
    exec(compile(example, "docs/processors.md", "exec"), {})


def test_every_family_and_preset_is_on_the_page() -> None:
    for name in families.FAMILIES:
        assert f"`{name}`" in PAGE
