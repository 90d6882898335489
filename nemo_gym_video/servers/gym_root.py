# SPDX-License-Identifier: Apache-2.0
"""Where environments, agents and verifiers are found: Gym's search roots, this package's own among them.

``media_roots``, ``media_store`` and a task's file are relative to one folder wherever they are read: that of the
environment, ``environments/NAME/`` below the first root that has it. Imports nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nemo_gym_video.errors import ServerStartError

EXTRA_ROOTS_VARIABLE = "NEMO_GYM_EXTRA_ROOTS"
"""Gym's variable for more roots, separated as in ``PATH``; ``--search-dir`` is folded into it."""


def search_root() -> Path:
    """The folder to give to Gym's ``--search-dir``: the checkout, or the trees that the wheel ships."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "gym_root"
    return shipped if (shipped / "environments").is_dir() else package.parent


def search_roots(first: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Absolute roots in Gym's order: ``first``, the extra roots, the working directory, this package's own."""
    extra = [Path(root) for root in os.environ.get(EXTRA_ROOTS_VARIABLE, "").split(os.pathsep) if root]
    return tuple(dict.fromkeys(root.absolute() for root in (*first, *extra, Path.cwd(), search_root())))


def is_environment_name(name: str) -> bool:
    """Whether ``name`` can be the name of an environment's folder: one path component, or several with ``/``."""
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name


def environment_folder(name: str, *, config_paths: Iterable[str] = ()) -> Path:
    """The absolute folder ``environments/name`` of a running Gym.

    ``config_paths`` are the configuration files of Gym's merged configuration. ``gym env start --environment``
    names them by absolute paths, so they tell the folder even where a server process no longer knows in which
    directory the command was given.

    Raises:
        ServerStartError: none of the places has it; each that was tried is named.
    """
    named = [Path(path) for path in config_paths if Path(path).is_absolute()]
    catalogues = [parent for path in named for parent in path.parents if parent.name == "environments"]
    tried = [*(root / "environments" for root in search_roots()), *catalogues]
    if is_environment_name(name):
        # The configuration that was chosen wins over another environment of the same name.
        for folder in (*(path.parent for path in named), *(catalogue / name for catalogue in tried)):
            if (
                folder.parts[-len(Path(name).parts) - 1 :] == ("environments", *Path(name).parts)
                and (folder / "config.yaml").is_file()
            ):
                return folder
    places = ", ".join(dict.fromkeys(map(str, tried)))
    raise ServerStartError(
        "environment was not found by its folder",
        got=name,
        allowed=f"NAME with environments/NAME/config.yaml below a --search-dir; looked in {places}",
    )
