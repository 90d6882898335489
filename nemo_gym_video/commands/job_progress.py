# SPDX-License-Identifier: Apache-2.0
"""One preparation as a person sees it: a progress line while it runs, a table of what came out."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.chunks import Source
from nemo_gym_video.prepare.job import JobSettings, run_job
from nemo_gym_video.prepare.merge import Report
from nemo_gym_video.prepare.outcome import REASONS


def prepare_with_progress(source: Source, output: Path, settings: JobSettings) -> Report:
    """Run one job with a progress line on stderr and print its table.

    Raises:
        PreparationError: as ``run_job``, or a file cannot be read or written.
    """
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
