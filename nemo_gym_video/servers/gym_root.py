# SPDX-License-Identifier: Apache-2.0
"""Where Gym finds this package's environments, agents and verifiers."""

from __future__ import annotations

from pathlib import Path


def search_root() -> Path:
    """The folder to give to Gym's ``--search-dir``: the checkout, or the trees that the wheel ships."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "gym_root"
    return shipped if (shipped / "environments").is_dir() else package.parent
