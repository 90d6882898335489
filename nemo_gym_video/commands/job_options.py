# SPDX-License-Identifier: Apache-2.0
"""The options that every preparation takes, whatever the data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemo_gym_video.commands.shared_options import Limit, MaxModelLen, Processor, Seed
from nemo_gym_video.errors import PreparationError

if TYPE_CHECKING:
    from nemo_gym_video.prepare.job import JobSettings

VALIDATION_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a preparation runs and what every row of it must be; the fields are the command's options."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write; new, or one to resume.")]
    transport: Annotated[
        Literal["video", "frames", "stills"] | None,
        typer.Option(
            help="How rows carry a video: the source video, tagged PNG frames, or labelled JPEG stills. "
            "Default: what the data set is made for."
        ),
    ] = None
    seed: Seed = 0
    workers: Annotated[int, typer.Option(min=1, help="Processes, or Ray actors.")] = 1
    ray: Annotated[str | None, typer.Option(metavar="local|ADDRESS", help="Run on Ray Data.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a job that was stopped.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first error.")] = False
    drop_blind: Annotated[
        bool, typer.Option("--drop-blind", help="Leave out rows that a policy answers fully without looking.")
    ] = False
    validation_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help=f"Share of the videos that goes to validation: {VALIDATION_SHARE} of published training data, "
            "all of published val and test data, none of synthetic data.",
        ),
    ] = None
    absolute: Annotated[bool, typer.Option("--absolute", help="Write absolute media paths.")] = False
    processor: Processor = None
    max_model_len: MaxModelLen = None
    licence: Annotated[
        str | None, typer.Option(help="Licence to state on the data card; needed for files of your own.")
    ] = None

    def settings(self, *, default_share: float, limit: int | None = None, shard: str = "1/1") -> JobSettings:
        """The settings of the job; ``default_share`` of the videos goes to validation when nothing is asked."""
        from nemo_gym_video.prepare.finish import RowRules  # start-up: --help needs no numpy
        from nemo_gym_video.prepare.job import JobSettings  # start-up: --help needs no numpy
        from nemo_gym_video.prepare.merge import MergeRules  # start-up: --help needs no numpy

        share = default_share if self.validation_share is None else self.validation_share
        return JobSettings(
            limit=limit,
            shard=_parse_shard(shard),
            workers=self.workers,
            ray=self.ray,
            resume=self.resume,
            strict=self.strict,
            licence=self.licence,
            rows=RowRules(absolute=self.absolute, processor=self.processor, max_model_len=self.max_model_len),
            merge=MergeRules(validation_share=share, drop_blind=self.drop_blind, seed=self.seed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions(RunOptions):
    """A preparation of files that were there before: it can also take a part of them."""

    limit: Limit = None
    shard: Annotated[str, typer.Option(metavar="i/n", help="Only every n-th input, starting with the i-th.")] = (
        "1/1"
    )


def _parse_shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise PreparationError("shard is not i/n with 1 <= i <= n", got=text, where="--shard")
    return int(part), int(parts)
