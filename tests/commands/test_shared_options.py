# SPDX-License-Identifier: Apache-2.0
"""A group of options declared once: every command that takes it has its options, its checks and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from nemo_gym_video.cli import build_app
from nemo_gym_video.commands.job_options import DataOptions, RunOptions
from nemo_gym_video.commands.shared_options import Seed, with_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Two options, one of them required."""

    name: Annotated[str, typer.Option(help="A name.")]
    seed: Seed = 3


def call(*words: str) -> Result:
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_options(Group)
    def show(group: Group, size: Annotated[int, typer.Option(min=1)] = 2) -> None:
        """Print what came."""
        print(group.name, group.seed, size)

    return CliRunner().invoke(app, list(words))


def test_the_group_is_filled_and_has_its_defaults() -> None:
    assert call("--name", "a").output == "a 3 2\n"
    assert call("--name", "a", "--seed", "9", "--size", "5").output == "a 9 5\n"


@pytest.mark.parametrize("words", ["", "--name a --seed x", "--name a --size 0", "--name a --group x"])
def test_what_the_group_does_not_take_is_refused(words: str) -> None:
    assert call(*words.split()).exit_code == 2


@pytest.mark.parametrize(
    ("name", "group"), [("sav", DataOptions), ("caprl", DataOptions), ("synthetic", RunOptions)]
)
def test_every_preparation_takes_the_same_options(name: str, group: type[RunOptions]) -> None:
    top: Any = typer.main.get_command(build_app("prepare"))
    commands = top.commands["prepare"].commands
    taken = [parameter.name for parameter in commands[name].params]
    shared = list(group.__dataclass_fields__)
    assert taken[-len(shared) :] == shared
    assert ("shard" in taken) == (group is DataOptions)
    assert len(taken) == len(set(taken))
