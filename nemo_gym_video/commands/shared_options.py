# SPDX-License-Identifier: Apache-2.0
"""Options that several commands take, each declared once, and a way to declare a whole group of them once.

An alias is the annotation of a parameter; the command gives the default:

    def sample(file: LinesFile = "-", jsonl: Jsonl = False) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

LinesFile = Annotated[
    str, typer.Argument(metavar="[FILE]", help="Lines to read, one JSON object each; - is stdin.")
]
RowFiles = Annotated[list[str], typer.Argument(metavar="FILE…", help="Rows, one a line; - is stdin.")]
Jsonl = Annotated[bool, typer.Option("--jsonl", help="One JSON object a line out, for programs.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
OutputFolder = Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")]
Processor = Annotated[
    str | None, typer.Option(metavar="PATH|PRESET", help="Processor preset or checkpoint folder to count with.")
]
ProcessorName = Annotated[str, typer.Argument(metavar="PATH|PRESET", help="A preset or a checkpoint folder.")]
Overrides = Annotated[str, typer.Option(metavar="JSON", help="Settings laid over it, as one JSON object.")]
MaxModelLen = Annotated[int | None, typer.Option(min=1, help="The engine's context length in tokens.")]
MediaRoots = Annotated[
    list[Path] | None, typer.Option("--media-root", help="Folder that media may come from; repeatable.")
]
NumFrames = Annotated[int | None, typer.Option(help="Frames to sample from a video.")]
TargetFps = Annotated[float | None, typer.Option(help="Rate to sample at, in frames a second.")]
Convention = Annotated[str, typer.Option(help="Whose frame sampling: vllm, nemo_rl, qwen2_vl or qwen3_vl.")]
Seed = Annotated[int, typer.Option(help="Seed of every choice.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first inputs.")]
NumRepeats = Annotated[int, typer.Option(min=1, help="Rollouts a row.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Rollouts at a time.")]


def with_options[Group](group: type[Group]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``group``, a dataclass whose fields are annotated like parameters.

    The command's first parameter gets the filled object; its own options stand before the group's in the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = get_type_hints(group, include_extras=True)
        own = get_type_hints(command, include_extras=True)
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[parameter.name])
            for parameter in list(inspect.signature(command).parameters.values())[1:]
        ]
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=shared[field.name],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            )
            for field in fields(group)  # type: ignore[arg-type]
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            command(group(**{name: given.pop(name) for name in shared}), **given)

        # Typer reads both; without them it would see the signature of what is wrapped.
        run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
