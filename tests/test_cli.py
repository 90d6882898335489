# SPDX-License-Identifier: Apache-2.0
"""The command line: what it lists, in which order, and that listing imports nothing that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nemo_gym_video.cli import COMMANDS, PANELS, build_app, main
from nemo_gym_video.errors import ERROR_CODES

ROOT = Path(__file__).resolve().parents[1]


def test_help_lists_every_command_in_its_panel_and_order() -> None:
    done = CliRunner().invoke(build_app(), ["--help"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    listed = [line.split()[0] for line in lines[lines.index("Start:") :] if line.strip()]
    assert listed == [word for title, panel in PANELS.items() for word in (f"{title}:", *panel)]
    assert all(f"{name} " in done.output and command.line in done.output for name, command in COMMANDS.items())
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_has_one_sentence(name: str) -> None:
    line = COMMANDS[name].line
    assert line.endswith(".")
    assert line.count(". ") == 0
    assert line[0].isupper()
    found = COMMANDS[name].load()
    assert isinstance(found, typer.Typer) or callable(found)
    done = CliRunner().invoke(build_app(name), [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Usage:" in done.output


def test_a_mistyped_command_is_refused_with_the_nearest_one() -> None:
    done = CliRunner().invoke(build_app("rolout"), ["rolout"])
    assert done.exit_code == 2
    assert "'rollout'" in done.output


def test_help_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['gym-video', '--help']\n"
        "from nemo_gym_video.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('nemo_gym_video.commands.')])\n"
        "print([name for name in ('numpy', 'pydantic', 'av', 'nemo_gym') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_an_error_ends_with_its_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["gym-video", "count", "--family", "no_such_family", "--image", "64x64"])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr().err.strip()
    assert stopped.value.code == 1
    code = said.rpartition("[")[2].removesuffix("]")
    assert code.startswith("processor.")
    assert code in ERROR_CODES
