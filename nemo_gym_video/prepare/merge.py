# SPDX-License-Identifier: Apache-2.0
"""Merges outcomes in input order into the files of a prepared data set, and reports on them.

Decisions that need more than one input are made here, in order: duplicates, the split by video, what a policy
that does not look can earn. Memory holds one digest for each row, no row.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from nemo_gym_video.prepare.blind_sum import BlindScores, gets_full_reward
from nemo_gym_video.prepare.card import data_card
from nemo_gym_video.prepare.outcome import Outcome, Totals
from nemo_gym_video.prepare.whole_files import dump_line, file_digest, stable_seed, write_text, written_beside

EXAMPLE_ROWS = 5
ROW_FILES = ("train.jsonl", "validation.jsonl", "example.jsonl")
ISSUE_FILE = "issues.jsonl"
_ISSUE_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """``validation_share`` of the videos (by content) goes to validation; ``drop_blind`` leaves out rows that a
    policy that does not look answers fully."""

    validation_share: float = 0.02
    drop_blind: bool = False
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """The rules as JSON."""
        return asdict(self)


@dataclass(slots=True)
class Report:
    """What a job did. ``issues`` are the first errors and skips; ``issues.jsonl`` holds all."""

    totals: Totals
    rows: dict[str, int]
    videos: dict[str, int]
    blind: dict[str, Any]
    letters: dict[str, int]
    prompts: dict[str, int]
    issues: list[dict[str, str]]
    identity: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of ``report.json``."""
        return {
            "totals": self.totals.to_json(),
            "rows": self.rows,
            "videos": self.videos,
            "blind_policies": self.blind,
            "answer_letters": self.letters,
            "prompt_versions": self.prompts,
            "issues": self.issues,
            "job": self.identity,
            "files": self.files,
        }

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> Report:
        """Read ``report.json`` back."""
        totals = obj["totals"]
        return cls(
            totals=Totals(
                inputs=totals["inputs"],
                rows=totals["rows"],
                skips=Counter(totals["skips"]),
                errors=Counter(totals["errors"]),
                notes=Counter(totals["left_out_objects"]),
            ),
            rows=dict(obj["rows"]),
            videos=dict(obj["videos"]),
            blind=dict(obj["blind_policies"]),
            letters=dict(obj["answer_letters"]),
            prompts=dict(obj["prompt_versions"]),
            issues=list(obj["issues"]),
            identity=dict(obj["job"]),
            files=dict(obj["files"]),
        )


def merge(
    output: Path,
    outcomes: Iterator[Outcome],
    *,
    identity: Mapping[str, Any],
    rules: MergeRules,
    published_licence: str | None,
) -> Report:
    """Write the row files, ``issues.jsonl``, the data card and, last, ``report.json``."""
    counts = _Counts()
    with contextlib.ExitStack() as stack:
        streams = {name: _row_file(stack, output / name) for name in (*ROW_FILES, ISSUE_FILE)}
        seen: set[bytes] = set()
        for given in outcomes:
            outcome = _decide(given, seen, rules)
            name = counts.add(outcome, rules)
            if outcome.row is None:
                streams[ISSUE_FILE].write(dump_line(_issue(outcome)))
                continue
            line = dump_line(outcome.row)
            streams[f"{name}.jsonl"].write(line)
            if counts.totals.rows <= EXAMPLE_ROWS:
                streams["example.jsonl"].write(line)
    report = counts.report(identity)
    write_text(output / "README.md", data_card(report.to_json(), published_licence=published_licence))
    names = (*ROW_FILES, ISSUE_FILE, "README.md")
    report.files = {name: file_digest(output / name) for name in names}
    write_text(output / "report.json", json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    return report


@dataclass(slots=True)
class _Counts:
    """What is counted while rows are written."""

    totals: Totals = field(default_factory=Totals)
    blind: BlindScores = field(default_factory=BlindScores)
    letters: Counter[str] = field(default_factory=Counter)
    prompts: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    videos: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    issues: list[dict[str, str]] = field(default_factory=list)

    def add(self, outcome: Outcome, rules: MergeRules) -> str:
        """Count one outcome; returns the split of a row."""
        self.totals.add(outcome)
        if outcome.row is None:
            if len(self.issues) < _ISSUE_LIMIT:
                self.issues.append(_issue(outcome))
            return ""
        row, group = outcome.row, outcome.group or ""
        self.blind.add(row)
        if "expected_answer" in row:
            self.letters[row["expected_answer"]] += 1
        self.prompts[row["metadata"]["prompt_version"]] += 1
        name = split_of(group, rules)
        self.videos[name].add(group)
        self.rows[name] += 1
        return name

    def report(self, identity: Mapping[str, Any]) -> Report:
        """The report so far, without the digests of the files."""
        splits = ("train", "validation")
        return Report(
            totals=self.totals,
            rows={name: self.rows[name] for name in splits},
            videos={name: len(self.videos[name]) for name in splits},
            blind=self.blind.to_json(),
            letters=dict(sorted(self.letters.items())),
            prompts=dict(sorted(self.prompts.items())),
            issues=self.issues,
            identity=dict(identity),
        )


def _row_file(stack: contextlib.ExitStack, path: Path) -> IO[str]:
    beside = stack.enter_context(written_beside(path))
    return stack.enter_context(beside.open("w", encoding="utf-8", errors="surrogateescape", newline="\n"))


def _decide(outcome: Outcome, seen: set[bytes], rules: MergeRules) -> Outcome:
    """The outcome, or the skip that rows before it or the rules make of it."""
    if outcome.row is None:
        return outcome
    key = _duplicate_key(outcome.row, outcome.group or "")
    if key in seen:
        return _skipped(outcome, "duplicate_prompt", "same prompt on the same video content as an earlier row")
    seen.add(key)
    if rules.drop_blind and (policy := gets_full_reward(outcome.row)) is not None:
        return _skipped(outcome, "blind", f"policy {policy} gets the full reward")
    return outcome


def _skipped(outcome: Outcome, reason: str, message: str) -> Outcome:
    return replace(outcome, kind="skip", row=None, manifests=(), notes={}, reason=reason,
                   message=f"{outcome.input_id}: {message}")  # fmt: skip


def _duplicate_key(row: Mapping[str, Any], group: str) -> bytes:
    """Digest of what the model is asked, on which content: names and places of media do not count."""
    texts = [
        part["text"]
        for message in row["responses_create_params"]["input"]
        for part in message["content"]
        if part["type"] == "input_text"
    ]
    window = row["metadata"].get("video_frames")
    return hashlib.sha256(json.dumps([group, texts, window]).encode()).digest()[:16]


def split_of(group: str, rules: MergeRules) -> str:
    """``train`` or ``validation``: decided by the video's content digest, so all its rows go one way."""
    draw = stable_seed("split", rules.seed, group) / 2.0**64
    return "validation" if draw < rules.validation_share else "train"


def _issue(outcome: Outcome) -> dict[str, str]:
    return {
        "kind": outcome.kind,
        "reason": outcome.reason or "",
        "input": outcome.input_id,
        "message": outcome.message or "",
    }


def finished_report(output: Path, identity: Mapping[str, Any]) -> Report | None:
    """The report of a job that ended with these settings and whose files are as it left them, else None."""
    try:
        report = Report.from_json(json.loads((output / "report.json").read_text("utf-8")))
        whole = all(file_digest(output / name) == digest for name, digest in report.files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return report if whole and report.identity == json.loads(json.dumps(identity)) else None
