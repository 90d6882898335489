# SPDX-License-Identifier: Apache-2.0
"""``gym-video root``."""

from __future__ import annotations

from nemo_gym_video.servers.gym_root import search_root


def root() -> None:
    """Print the folder to give to Gym's --search-dir or NEMO_GYM_EXTRA_ROOTS."""
    print(search_root())
