# SPDX-License-Identifier: Apache-2.0
"""The ``gym-video`` command. Each subcommand lives in ``nemo_gym_video/commands``; this file only lists them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from nemo_gym_video.errors import NemoGymVideoError


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A subcommand as ``--help`` lists it; its module is imported when it is run or asked for its own help.

    ``where`` is module and attribute: a function becomes a command, a typer app a group of commands.
    """

    where: str
    line: str

    def load(self) -> Any:
        """The function or typer app."""
        module, _, attribute = self.where.partition(":")
        return getattr(importlib.import_module(f"nemo_gym_video.commands.{module}"), attribute)


# Panels and commands in the order in which a user meets them.
PANELS: Mapping[str, Mapping[str, ListedCommand]] = {
    "Start": {
        "new": ListedCommand("new:new", "Write a working environment to begin from."),
        "root": ListedCommand("root:root", "Print the folder to give to Gym's --search-dir."),
    },
    "Data": {
        "prepare": ListedCommand("prepare:app", "Turn published data sets into rows."),
        "validate": ListedCommand("validate:validate", "List every problem of every row."),
        "baselines": ListedCommand("baselines:baselines", "Report the reward of policies that do not look."),
        "frames": ListedCommand("frames:frames", "Write the frames of a video that a loader would choose."),
    },
    "Engine": {
        "settings": ListedCommand("settings:settings", "Show and compare processor settings."),
        "count": ListedCommand("count:count", "Predict the media tokens of a model call from sizes."),
        "sample": ListedCommand("sample:sample", "Show which frames a loader takes from a clip."),
    },
    "Run": {
        "demo": ListedCommand("demo:demo", "Roll out every environment on media made on the spot."),
        "rollout": ListedCommand("rollout:rollout", "Roll out rows through Gym's servers."),
        "verify": ListedCommand("verify:verify", "Score answers or saved rollouts without a server."),
    },
    "Look": {
        "index": ListedCommand("index:index", "Say which media each turn of a rollout saw first."),
        "align": ListedCommand("align:align", "Compare media and token ids of model calls."),
    },
}
COMMANDS: Mapping[str, ListedCommand] = {
    name: command for panel in PANELS.values() for name, command in panel.items()
}


class _PanelGroup(TyperGroup):
    """Lists the commands by panel, from PANELS alone."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write one section a panel, with columns that line up over all of them."""
        del ctx
        width = max(map(len, COMMANDS))
        for title, panel in PANELS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.line) for name, command in panel.items()])


def build_app(only: str | None = None) -> typer.Typer:
    """The command line with the subcommand ``only``, or, for help and for a name that is not known, all of them.

    Only that one subcommand is imported; the others stand for themselves with their line of help.
    """
    app = typer.Typer(
        cls=_PanelGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        help="NeMo Gym environments for video: rollouts, scoring, token counts, data.",
    )
    app.callback()(_keep_as_group)
    if only is None or only not in COMMANDS:
        for name, command in COMMANDS.items():
            app.command(name, help=command.line)(_listed)
        return app
    found = COMMANDS[only].load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=only)
    else:
        app.command(only)(found)
    return app


def _keep_as_group() -> None:
    """Typer turns an app with one command into that command unless it has a callback."""


def _listed() -> None:
    """Stands for a command in the listing."""
    raise typer.BadParameter("write the command first: gym-video COMMAND [ARGS]")


def main() -> None:
    """Run the command line; a known error is one line on stderr with its code, and exit code 1."""
    try:
        build_app(sys.argv[1] if len(sys.argv) > 1 else None)()
    except NemoGymVideoError as error:
        print(f"gym-video: {error} [{error.code}]", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
