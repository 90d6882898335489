# SPDX-License-Identifier: Apache-2.0
"""A job's inputs in chunks: what a worker gets, what it writes, and how a chunk is known to be whole.

A worker's outcomes go to a file beside and renamed, with its own digest in its last line. What a worker does is a
function of the chunk alone, so it may run in any process that sees the output folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.finish import RowRules, finish
from nemo_gym_video.prepare.frame_folders import manifest_holds
from nemo_gym_video.prepare.outcome import Outcome
from nemo_gym_video.prepare.whole_files import dump_line, written_beside

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

    def licence(self) -> str | None:
        """The terms of the data set, known only when the inputs are the published ones; else None."""

    def items(self) -> Iterator[dict[str, Any]]:
        """The inputs in order, as JSON objects."""

    def media_roots(self) -> tuple[Path, ...]:
        """Folders besides the output that rows' relative media paths resolve against."""

    def sampling(self) -> dict[str, Any]:
        """How an engine is expected to sample native videos: ``convention`` and ``num_frames``."""

    def prepare(self, item: Mapping[str, Any], media_root: Path) -> list[Outcome]:
        """The outcomes of one input; never raises for what an input holds."""


def plan_file(job: Path, chunk: int) -> Path:
    """Where the inputs of a chunk stand, one JSON object a line."""
    return job / "plan" / f"{chunk:06d}.jsonl"


def done_file(job: Path, chunk: int) -> Path:
    """Where the outcomes of a chunk stand, their digest in the last line."""
    return job / "done" / f"{chunk:06d}.jsonl"


def chunk_inputs(job: Path, chunk: int) -> int:
    """How many inputs a planned chunk holds."""
    with plan_file(job, chunk).open("rb") as lines:
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
    plan = plan_file(job, chunk)
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
    with written_beside(done_file(job, chunk)) as beside:
        trailer = dump_line({"outcomes": len(outcomes), "sha256": digest})
        beside.write_bytes((text + trailer).encode("utf-8", "surrogateescape"))
    errors = (outcome.message for outcome in outcomes if outcome.kind == "error")
    return ChunkResult(chunk, len(lines), next(errors, None))


def is_done(job: Path, output: Path, chunk: int) -> bool:
    """Whether a chunk's outcomes are whole, and every frame set that its rows use is there."""
    path = done_file(job, chunk)
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


def read_outcomes(job: Path, chunks: int) -> Iterator[Outcome]:
    """The outcomes of all chunks, in the order of their inputs."""
    for chunk in range(chunks):
        with done_file(job, chunk).open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                record = json.loads(line)
                if "kind" in record:
                    yield Outcome.from_json(record)
