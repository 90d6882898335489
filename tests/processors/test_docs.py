# SPDX-License-Identifier: Apache-2.0
"""What ``docs/processors.md`` shows is what happens."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.processors import families
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.documents import names_of
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import CountRequest, MediaSize

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
    assert len(PYTHON) == 5


@pytest.mark.parametrize("example", PYTHON[:2])
def test_the_first_python_examples_hold(example: str) -> None:
    exec(compile(example, "docs/processors.md", "exec"), {})


def test_every_family_and_preset_is_on_the_page() -> None:
    for name in families.FAMILIES:
        assert f"`{name}`" in PAGE


def test_a_family_is_added_by_its_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fixed_grid.py"
    path.write_text(PYTHON[3], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("fixed_grid", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fixed_grid", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(families.FAMILIES, "fixed_grid", module.FixedGridSettings)
    names_of.cache_clear()

    settings = load_settings("fixed_grid")
    request = CountRequest(items=(MediaSize("image", 640, 360), MediaSize("video", 640, 360, 3)))
    counted = count_request(settings, request)
    assert [item.run_lengths for item in counted.items] == [(576,), (576,) * 3]
    assert counted.adjacent_regions_can_fuse

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "fixed_grid"}), encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_size": 28}), encoding="utf-8")
    assert count_request(load_settings(tmp_path), request).total == 4 * 4
    assert PYTHON[4].strip() == '"fixed_grid": FixedGridSettings,'
