# SPDX-License-Identifier: Apache-2.0
"""``gym-video new``: a working environment's folder to start one's own from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The environment's name, such as count_cars.")],
    multi_turn: Annotated[
        bool, typer.Option("--multi-turn", help="With an episode: a picture comes on every later turn.")
    ] = False,
    directory: Annotated[
        Path, typer.Option("--dir", file_okay=False, help="Where environments/NAME/ is made.")
    ] = Path(),
) -> None:
    """Write environments/NAME: a task in one file, its configuration, five rows with media, and a test."""
    # start-up: it makes clips, and so imports the codec.
    from nemo_gym_video.launch.scaffold import scaffold_environment

    folder = scaffold_environment(name, directory, multi_turn=multi_turn)
    print(f"wrote {folder}")
    print("run it with:")
    print(f"  gym-video rollout --search-dir {shlex.quote(str(directory))} --environment {name} --output out")
