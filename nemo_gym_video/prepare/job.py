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
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.finish import RowRules, finish
from nemo_gym_video.prepare.frame_folders import manifest_holds
from nemo_gym_video.prepare.merge import MergeRules, Report, finished_report, merge
from nemo_gym_video.prepare.outcome import Outcome
from nemo_gym_video.prepare.whole_files import dump_line, remove_leftovers, write_text, written_beside

CHUNK = 8
"""Inputs that are worked on and written together; what a kill can cost each worker."""

JOB_FOLDER = ".job"


class Source(Protocol):
    """A data set to prepare: picklable, and a pure function of its settings and files."""

    @property
    def name(self) -> str:
        """Short name of the data set."""

    def settings(self) -> dict[str, Any]:
        """Settings as JSON."""

    def check(self) -> None:
        """Raise ``PreparationError`` for settings that cannot work."""

    def items(self) -> Iterator[dict[str, Any]]:
        """The inputs in order, as JSON objects."""

    def media_roots(self) -> tuple[Path, ...]:
        """Folders besides the output that rows' relative media paths resolve against."""

    def sampling(self) -> dict[str, Any]:
        """How an engine is expected to sample native videos: ``convention`` and ``num_frames``."""

    def prepare(self, item: Mapping[str, Any], media_root: Path) -> list[Outcome]:
        """The outcomes of one input; never raises for what an input holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How a job runs. ``shard`` is (i, n) with 1 <= i <= n; ``ray`` is an address or ``local``.

    ``workers`` processes of one core each, or this process when 0; ``ray`` moves them to Ray Data.
    ``strict`` stops at the first error. Only ``limit``, ``shard``, ``rows`` and ``merge`` change what comes out.
    """

    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    workers: int = 0
    ray: str | None = None
    resume: bool = False
    strict: bool = False
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
        report = merge(output, _outcomes(job, chunks), identity=identity, rules=settings.merge)
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
        write_text(_plan_file(job, chunks), "".join(dump_line(item) for item in chunk))
        chunks, inputs = chunks + 1, inputs + len(chunk)
    write_text(whole, dump_line({"chunks": chunks, "inputs": inputs}))
    return chunks, inputs


def _plan_file(job: Path, chunk: int) -> Path:
    return job / "plan" / f"{chunk:06d}.jsonl"


def _done_file(job: Path, chunk: int) -> Path:
    return job / "done" / f"{chunk:06d}.jsonl"


def _work(
    source: Source, output: Path, settings: JobSettings, *, chunks: int, inputs: int, progress: Progress
) -> None:
    from nemo_gym_video.prepare import executors as workers

    job = output / JOB_FOLDER
    open_chunks = [chunk for chunk in range(chunks) if not _is_done(job, output, chunk)]
    done = inputs - sum(_chunk_inputs(job, chunk) for chunk in open_chunks)
    progress(done, inputs)
    task = ChunkTask(source, output.absolute(), settings.rows)
    runner = workers.start(task, workers=settings.workers, ray=settings.ray)
    with contextlib.closing(runner(open_chunks)) as results:
        for result in results:
            done += result.inputs
            progress(done, inputs)
            if settings.strict and result.first_error is not None:
                raise PreparationError(f"stopped at the first error (--strict): {result.first_error}")


def _chunk_inputs(job: Path, chunk: int) -> int:
    with _plan_file(job, chunk).open("rb") as lines:
        return sum(1 for _ in lines)


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What a worker says about a chunk: its inputs, and the message of its first error."""

    chunk: int
    inputs: int
    first_error: str | None


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """What a worker needs to work on any chunk; small, picklable. ``output`` is the same path everywhere."""

    source: Source
    output: Path
    rows: RowRules


def prepare_chunk(task: ChunkTask, chunk: int) -> ChunkResult:
    """Work on one planned chunk and write its outcomes; runs in any process that sees the output folder."""
    source, output = task.source, task.output
    roots = (output, *source.media_roots())
    job = output / JOB_FOLDER
    plan = _plan_file(job, chunk)
    if not plan.is_file():
        raise PreparationError("a worker does not see the output folder", code="prepare.output", got=str(plan),
                               allowed="a folder that all nodes share")  # fmt: skip
    outcomes: list[Outcome] = []
    lines = plan.read_text("utf-8", "surrogateescape").splitlines()
    for line in lines:
        for outcome in source.prepare(json.loads(line), output):
            outcomes.append(finish(outcome, rules=task.rows, roots=roots, sampling=source.sampling()))
    text = "".join(dump_line(outcome.to_json()) for outcome in outcomes)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    with written_beside(_done_file(job, chunk)) as beside:
        trailer = dump_line({"outcomes": len(outcomes), "sha256": digest})
        beside.write_bytes((text + trailer).encode("utf-8", "surrogateescape"))
    errors = (outcome.message for outcome in outcomes if outcome.kind == "error")
    return ChunkResult(chunk, len(lines), next(errors, None))


def _is_done(job: Path, output: Path, chunk: int) -> bool:
    """Whether a chunk's outcomes are whole, and every frame set that its rows use is there."""
    path = _done_file(job, chunk)
    if not path.is_file():
        return False
    data = path.read_bytes()
    cut = data.rstrip(b"\n").rfind(b"\n") + 1
    try:
        trailer = json.loads(data[cut:])
        outcomes = [Outcome.from_json(json.loads(line)) for line in data[:cut].splitlines()]
    except (ValueError, TypeError):
        return False
    if not isinstance(trailer, dict) or trailer.get("sha256") != hashlib.sha256(data[:cut]).hexdigest():
        return False
    manifests = {manifest for outcome in outcomes for manifest in outcome.manifests}
    return all(manifest_holds(output, manifest) for manifest in manifests)


def _outcomes(job: Path, chunks: int) -> Iterator[Outcome]:
    for chunk in range(chunks):
        with _done_file(job, chunk).open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                record = json.loads(line)
                if "kind" in record:
                    yield Outcome.from_json(record)
