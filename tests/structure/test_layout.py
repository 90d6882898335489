# SPDX-License-Identifier: Apache-2.0
"""The folders that Gym finds by path, and what every source file begins with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tracked(pattern: str) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_every_source_file_names_its_licence() -> None:
    files = [*_tracked("*.py"), *_tracked("scripts/*"), *_tracked("Makefile"), *_tracked(".ci/*")]
    assert len(files) > 10
    lacking = [
        str(path.relative_to(ROOT))
        for path in files
        if "SPDX-License-Identifier: Apache-2.0" not in "".join(path.open(encoding="utf-8").readlines()[:2])
    ]
    assert lacking == []


@pytest.mark.parametrize("tree", ["environments", "agents", "verifiers", "datasets"])
def test_the_trees_are_no_packages(tree: str) -> None:
    assert (ROOT / tree).is_dir()
    assert not (ROOT / tree / "__init__.py").exists()


@pytest.mark.parametrize("link", [("responses_api_agents", "agents"), ("resources_servers", "verifiers")])
def test_gym_finds_the_trees_by_its_own_names(link: tuple[str, str]) -> None:
    name, target = link
    assert (ROOT / name).is_symlink()
    assert (ROOT / name).resolve() == ROOT / target


def test_hugging_face_datasets_is_not_shadowed() -> None:
    first = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    code = f"{first}; import datasets; print(datasets.__file__, datasets.Dataset)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert str(ROOT / "datasets") not in done.stdout


def test_a_package_named_datasets_at_the_root_would_shadow(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import datasets; print(datasets.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert str(tmp_path) in done.stdout


def test_gym_lists_our_environments() -> None:
    gym = Path(sys.executable).parent / "gym"
    command = [str(gym), "list", "environments", "--search-dir", "."]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for name in sorted(path.parent.name for path in (ROOT / "environments").glob("*/config.yaml")):
        assert name in done.stdout
