# SPDX-License-Identifier: Apache-2.0
"""``gym-video settings``: what a processor is set to, and how two of them differ."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.shared_options import AsJson, Overrides, ProcessorName
from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.differences import diff_settings
from nemo_gym_video.processors.presets import LoadedSettings, ProcessorSettings, read_settings

settings = typer.Typer(no_args_is_help=True, help="Processor settings of presets and checkpoint folders.")

_Family = Annotated[str | None, typer.Option(help="Read a folder as this family.")]


@settings.command("show")
def show(
    name: ProcessorName,
    overrides: Overrides = "{}",
    family: _Family = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting with its source, and what to start the engine with."""
    loaded = read_settings(name, overrides=_parse(overrides), family=family)
    if as_json:
        print(json.dumps(_body(loaded), ensure_ascii=False))
    else:
        _print(loaded, folder=f"{Path(name)}/")


@settings.command("diff")
def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A checkpoint folder or a preset's name.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    left_overrides: Overrides = "{}",
    right_overrides: Overrides = "{}",
    as_json: AsJson = False,
) -> None:
    """Say every difference in one line, with its effect on counts."""
    one = read_settings(left, overrides=_parse(left_overrides)).settings
    other = read_settings(right, overrides=_parse(right_overrides)).settings
    differences = diff_settings(one, other)
    for entry in differences:
        if as_json:
            body = {"name": entry.name, "left": entry.left, "right": entry.right, "effect": entry.effect}
            print(json.dumps(body, ensure_ascii=False))
        else:
            print(entry)
    if not differences and not as_json:
        print(f"equal settings of {one.family}, {one.fingerprint}")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProcessorSettingsError(f"overrides are not valid JSON ({error})", got=text) from error


def _body(loaded: LoadedSettings) -> dict[str, Any]:
    chosen = loaded.settings
    return {
        "family": chosen.family,
        "fingerprint": chosen.fingerprint,
        "settings": chosen.values(),
        "sources": dict(loaded.sources),
        "engine_arguments": chosen.engine_arguments(),
        "trainer_settings": chosen.trainer_settings(),
        "media_token_ids": list(chosen.media_token_ids),
        "placeholder_strings": list(chosen.placeholder_strings),
        "notes": list(loaded.notes),
    }


def _print(loaded: LoadedSettings, *, folder: str) -> None:
    from rich.console import Console  # start-up: --json prints no table
    from rich.table import Table  # start-up: --json prints no table

    console = Console(highlight=False, markup=False, soft_wrap=False)
    chosen = loaded.settings
    console.print(f"family {chosen.family}, {chosen.fingerprint}", soft_wrap=True)
    table = Table("setting", "value", "source", box=None, pad_edge=False)
    for name, value in chosen.values().items():
        table.add_row(name, json.dumps(value), loaded.sources[name].removeprefix(folder))
    console.print(table)
    strings = " ".join(chosen.placeholder_strings)
    ids = ", ".join(str(number) for number in chosen.media_token_ids) or "in the checkpoint's tokenizer"
    console.print(f"media token ids: {ids}; markers: {strings}")
    for note in loaded.notes:
        console.print(f"note: {note}")
    console.print("start vLLM with:")
    for line in vllm_flags(chosen):
        console.print(f"  {line}", soft_wrap=True)


def vllm_flags(chosen: ProcessorSettings) -> list[str]:
    """The engine arguments as command-line flags, quoted for a shell, one a line."""
    lines = []
    for name, value in chosen.engine_arguments().items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        lines.append(f"--{name.replace('_', '-')} {shlex.quote(text)}")
    return lines
