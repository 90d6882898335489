# SPDX-License-Identifier: Apache-2.0
"""The wheel ships what Gym must find by path, and says where."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder holding the unpacked wheel, as site-packages would."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    site = out / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return site


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_root_is_inside_the_installed_package(installed: Path) -> None:
    code = "from nemo_gym_video.cli import main; import sys; sys.argv = ['gym-video', 'root']; main()"
    done = run(installed, sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(installed / "nemo_gym_video" / "gym_root")


def test_the_shipped_root_has_gyms_folder_names(installed: Path) -> None:
    root = installed / "nemo_gym_video" / "gym_root"
    for tree, ours in (
        ("environments", "environments"),
        ("responses_api_agents", "agents"),
        ("resources_servers", "verifiers"),
    ):
        shipped = {path.parent.name for path in (root / tree).glob("*/*") if path.suffix in (".py", ".yaml")}
        assert shipped == {
            path.parent.name for path in (ROOT / ours).glob("*/*") if path.suffix in (".py", ".yaml")
        }
        assert shipped
        assert not (root / tree / "__init__.py").exists()


def test_gym_lists_the_shipped_environments(installed: Path) -> None:
    root = installed / "nemo_gym_video" / "gym_root"
    done = run(installed, str(BIN / "gym"), "list", "environments", "--search-dir", str(root))
    assert done.returncode == 0, done.stderr
    for config in (ROOT / "environments").glob("*/config.yaml"):
        assert config.parent.name in done.stdout


def test_the_wheel_holds_no_cache_and_no_outputs(installed: Path) -> None:
    names = [str(path.relative_to(installed)) for path in installed.rglob("*")]
    assert not [
        name for name in names if "__pycache__" in name or "/outputs" in name or name.endswith(".jsonl.tmp")
    ]
