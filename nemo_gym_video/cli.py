# SPDX-License-Identifier: Apache-2.0
"""The ``gym-video`` command. Each subcommand lives in ``nemo_gym_video/commands``; this file only lists them."""

from __future__ import annotations

import importlib
import sys

import typer

from nemo_gym_video.errors import NemoGymVideoError

# Name, then module and attribute: a function becomes a command, a typer app a group of commands.
COMMANDS = {
    "demo": "nemo_gym_video.commands.demo:demo",
    "count": "nemo_gym_video.commands.count:count",
    "frames": "nemo_gym_video.commands.frames:frames",
    "index": "nemo_gym_video.commands.index:index",
    "baselines": "nemo_gym_video.commands.baselines:baselines",
    "prepare": "nemo_gym_video.commands.prepare:app",
    "new": "nemo_gym_video.commands.new:new",
    "root": "nemo_gym_video.commands.root:root",
    "rollout": "nemo_gym_video.commands.rollout:rollout",
    "align": "nemo_gym_video.commands.align:align",
    "settings": "nemo_gym_video.commands.settings:settings",
    "sample": "nemo_gym_video.commands.sample:sample",
    "validate": "nemo_gym_video.commands.validate:validate",
    "verify": "nemo_gym_video.commands.verify:verify",
}


def build_app(only: str | None = None) -> typer.Typer:
    """The command line; with ``only`` just that subcommand is imported, so that it pays for its own imports."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        help="NeMo Gym environments for video: rollouts, scoring, token counts, data.",
    )
    app.callback()(_keep_as_group)
    for name in [only] if only in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _keep_as_group() -> None:
    """Typer turns an app with one command into that command unless it has a callback."""


def main() -> None:
    """Run the command line; a known error is one line on stderr and exit code 1, never a traceback."""
    try:
        build_app(sys.argv[1] if len(sys.argv) > 1 else None)()
    except NemoGymVideoError as error:
        print(f"gym-video: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
