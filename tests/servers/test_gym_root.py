# SPDX-License-Identifier: Apache-2.0
"""Where an environment's folder is, for a server that only knows its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.servers.agent_config import MediaSettings
from nemo_gym_video.servers.gym_root import environment_folder, search_root, search_roots


@pytest.fixture(autouse=True)
def no_roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    monkeypatch.delenv("NEMO_GYM_CONFIG_DICT", raising=False)
    monkeypatch.delenv("NEMO_GYM_VIDEO_MEDIA_ROOTS", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def make(root: Path, name: str = "mine") -> Path:
    folder = root / "environments" / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("{}\n")
    return folder


def test_an_extra_root_is_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    with pytest.raises(ServerStartError, match=r"not found.*'mine'.*looked in"):
        environment_folder("mine")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", f"{tmp_path / 'none'}:{tmp_path / 'one'}")
    assert environment_folder("mine") == folder
    assert search_roots()[:2] == (tmp_path / "none", tmp_path / "one")
    assert search_roots()[-1] == search_root()


def test_the_working_directory_is_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert environment_folder("mine") == folder


def test_the_chosen_configuration_tells_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As ``gym env start --environment`` leaves it, in a process that has left the directory of the command."""
    chosen, other = make(tmp_path / "one"), make(tmp_path / "two")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "two"))
    assert environment_folder("mine") == other
    assert environment_folder("mine", config_paths=[str(chosen / "config.yaml")]) == chosen
    # One that the chosen one includes by a relative path stands beside it.
    beside = make(tmp_path / "one", "beside")
    assert environment_folder("beside", config_paths=[str(chosen / "config.yaml"), "x.yaml"]) == beside


def test_the_package_has_its_own() -> None:
    assert environment_folder("caprl_mcqa") == search_root() / "environments" / "caprl_mcqa"


@pytest.mark.parametrize("name", ["", "..", ".", "a/../caprl_mcqa", "/etc", "caprl_mcqa/"])
def test_a_name_is_no_path_out_of_the_catalogue(name: str) -> None:
    with pytest.raises(ServerStartError, match="not found"):
        environment_folder(name)


def test_relative_paths_are_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = make(tmp_path)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    given: dict[str, Any] = {"media_roots": ["data", "/absolute"], "media_store": "made"}
    assert MediaSettings(environment="mine", **given).roots() == (
        folder / "data",
        Path("/absolute"),
        folder / "made",
    )
    with pytest.raises(ServerStartError, match=r"needs the environment.*'data'.*environment: NAME"):
        MediaSettings(media_roots=["data"]).roots()
    with pytest.raises(ServerStartError, match="not found"):
        MediaSettings(environment="other", **given).roots()
