# SPDX-License-Identifier: Apache-2.0
"""Runs a preparation: plan, work through chunks on any number of workers, merge in input order.

Under ``OUTPUT/.job`` the plan (the inputs, in chunks) is written first, then one file of outcomes for each chunk,
beside and renamed, with its own digest in its last line. What the workers do is a function of the chunk alone, and
the merge reads chunks in order, so the output has the same bytes whatever the workers, and a killed job goes on
with ``resume`` from the chunks that are whole. ``report.json`` is written last; then ``.job`` goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare import executors
from nemo_gym_video.prepare.chunks import (
    CHUNK,
    JOB_FOLDER,
    ChunkTask,
    Source,
    chunk_inputs,
    is_done,
    plan_file,
    read_outcomes,
)
from nemo_gym_video.prepare.finish import RowRules
from nemo_gym_video.prepare.merge import MergeRules, Report, finished_report, merge
from nemo_gym_video.prepare.whole_files import dump_line, remove_leftovers, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How a job runs. ``shard`` is (i, n) with 1 <= i <= n; ``ray`` is an address or ``local``.

    ``workers`` processes of one core each, or this process when 0; ``ray`` moves them to Ray Data.
    ``strict`` stops at the first error. ``licence`` is stated on the data card instead of the source's own.
    Only ``limit``, ``shard``, ``licence``, ``rows`` and ``merge`` change what comes out.
    """

    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    workers: int = 0
    ray: str | None = None
    resume: bool = False
    strict: bool = False
    licence: str | None = None
    rows: RowRules = field(default_factory=RowRules)
    merge: MergeRules = field(default_factory=MergeRules)


Progress = Callable[[int, int], None]
"""Called with inputs done and inputs in all."""


def run_job(source: Source, output: Path, settings: JobSettings, *, progress: Progress | None = None) -> Report:
    """Prepare ``source`` into ``output`` and return the report.

    Raises:
        PreparationError: the settings cannot work, the output belongs to another job or a running one, or (with
            ``strict``) an input ended in an error.
    """
    source.check()
    settings.rows.check()
    identity = _identity(source, settings)
    output.mkdir(parents=True, exist_ok=True)
    with _locked(output):
        done = finished_report(output, identity) if settings.resume else None
        if done is not None:
            shutil.rmtree(output / JOB_FOLDER, ignore_errors=True)
            return done
        job = output / JOB_FOLDER
        _open_job(job, output, identity, resume=settings.resume)
        chunks, inputs = _plan(source, job, settings)
        _work(source, output, settings, chunks=chunks, inputs=inputs, progress=progress or _silent)
        outcomes, terms = read_outcomes(job, chunks), source.licence()
        report = merge(output, outcomes, identity=identity, rules=settings.merge, published_licence=terms)
        shutil.rmtree(job)
        return report


def _silent(_done: int, _total: int) -> None:
    """No progress."""


def _identity(source: Source, settings: JobSettings) -> dict[str, Any]:
    return {
        "source": source.name,
        "settings": source.settings(),
        "limit": settings.limit,
        "shard": list(settings.shard),
        "rows": settings.rows.to_json(),
        "merge": settings.merge.to_json(),
        # Left out when nothing is stated, as in jobs from before there was this setting.
        **({} if settings.licence is None else {"licence": settings.licence}),
    }


@contextlib.contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Hold the output folder; the kernel lets go of it when the process ends, however it ends."""
    with (output / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PreparationError(
                "another preparation is writing to this folder", code="prepare.output", got=str(output)
            ) from None
        try:
            yield
        finally:
            (output / ".lock").unlink(missing_ok=True)


def _open_job(job: Path, output: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
    record = job / "job.json"
    if not resume:
        taken = [name for name in (JOB_FOLDER, "report.json", "train.jsonl") if (output / name).exists()]
        if taken:
            raise PreparationError("output folder already holds a preparation", code="prepare.output", got=taken,
                                   allowed="an empty folder, or --resume", where=str(output))  # fmt: skip
    before = _earlier_job(record, output / "report.json")
    if before is not None:
        changed = sorted(name for name in {*before, *identity} if before.get(name) != identity.get(name))
        if changed:
            raise PreparationError(
                "the job to resume was started with other settings",
                code="prepare.output",
                got=changed,
                allowed="the same command, or another folder",
                where=str(output),
            )
    remove_leftovers(output)
    (job / "plan").mkdir(parents=True, exist_ok=True)
    (job / "done").mkdir(exist_ok=True)
    write_text(record, dump_line(identity))


def _earlier_job(record: Path, report: Path) -> dict[str, Any] | None:
    """The settings of the job that was stopped or finished in this folder, None when there was none."""
    if record.is_file():
        before: dict[str, Any] = json.loads(record.read_text("utf-8"))
        return before
    if report.is_file():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return dict(json.loads(report.read_text("utf-8"))["job"])
    return None


def _plan(source: Source, job: Path, settings: JobSettings) -> tuple[int, int]:
    """Write the inputs in chunks; returns the numbers of chunks and inputs. A whole plan is kept."""
    whole = job / "plan.json"
    if whole.is_file():
        record = json.loads(whole.read_text("utf-8"))
        return int(record["chunks"]), int(record["inputs"])
    part, parts = settings.shard
    items = itertools.islice(itertools.islice(source.items(), settings.limit), part - 1, None, parts)
    chunks = inputs = 0
    while chunk := list(itertools.islice(items, CHUNK)):
        write_text(plan_file(job, chunks), "".join(dump_line(item) for item in chunk))
        chunks, inputs = chunks + 1, inputs + len(chunk)
    write_text(whole, dump_line({"chunks": chunks, "inputs": inputs}))
    return chunks, inputs


def _work(
    source: Source, output: Path, settings: JobSettings, *, chunks: int, inputs: int, progress: Progress
) -> None:
    job = output / JOB_FOLDER
    open_chunks = [chunk for chunk in range(chunks) if not is_done(job, output, chunk)]
    done = inputs - sum(chunk_inputs(job, chunk) for chunk in open_chunks)
    progress(done, inputs)
    task = ChunkTask(source, output.absolute(), settings.rows)
    runner = executors.start(task, workers=settings.workers, ray=settings.ray)
    with contextlib.closing(runner(open_chunks)) as results:
        for result in results:
            done += result.inputs
            progress(done, inputs)
            if settings.strict and result.first_error is not None:
                raise PreparationError(f"stopped at the first error (--strict): {result.first_error}")
