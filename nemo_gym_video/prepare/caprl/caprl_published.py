# SPDX-License-Identifier: Apache-2.0
"""Reads CAPRL questions in both forms: CapRL-Video-QA rows with several questions, and trainer-style JSONL.

Reading streams; only a JSON array is held whole. What comes out names the place of every question in its file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import PreparationError, Where
from nemo_gym_video.prepare.caprl.option_text import answer_place, options_from_prose, structured_options
from nemo_gym_video.prepare.outcome import Refusal

VERIFIERS = ("multiple-choice", "multiple_choice", "mcqa", "mcq", "mathruler")
"""Values of ``verifier`` that a multiple-choice row may carry."""

# What stands for the media in a prompt's own text; dropped at its ends, refused inside.
_MEDIA_MARKS = ("<video>", "<image>")
_INSTRUCTIONS = ("please put", "please select", "please answer", "answer with", "put your", "provide your")


PUBLISHED_LICENCE = (
    "The CapRL question sets show no licence of their own. The videos they name come from LLaVA-Video-178K "
    "(Apache-2.0; its card limits use to academic research and education). Check both before you share rows."
)
_PUBLISHED_NAME = re.compile(r"caprl[-_]video.*\.parquet", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns to read where a file has its own; None takes the published names in turn."""

    question: str | None = None
    options: str | None = None
    answer: str | None = None
    video: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadItem:
    """One question about one video, options without labels; ``answer`` indexes ``options``."""

    question: str
    options: tuple[str, ...]
    answer: int
    video: str


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """(line, record) pairs of a parquet, JSON or JSONL file; a line that is no object comes as its error text.

    ``line`` counts lines of JSONL from 1, and records of the other forms from 1.
    """
    if not path.is_file():
        raise PreparationError("input file does not exist", code="prepare.missing", got=str(path), where="--input")
    if path.suffix.lower() == ".parquet":
        yield from _parquet(path)
    elif path.suffix.lower() == ".json":
        yield from _json_array(path)
    else:
        yield from _json_lines(path)


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    import pyarrow  # start-up: only a parquet file needs Arrow
    import pyarrow.parquet  # start-up: only a parquet file needs Arrow

    line = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=64):
                for record in batch.to_pylist():
                    line += 1
                    yield line, record
    except (pyarrow.ArrowException, OSError) as error:
        raise PreparationError(f"parquet file cannot be read ({error})"[:300], got=str(path)) from error


def _json_array(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PreparationError(f"JSON file cannot be read ({error})"[:300], got=str(path)) from error
    if not isinstance(body, list):
        raise PreparationError("JSON file holds no list", got=type(body).__name__, where=str(path))
    for line, record in enumerate(body, start=1):
        yield line, record if isinstance(record, dict) else "record is no object"


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, f"not valid JSON ({error})"[:300]
                continue
            yield number, record if isinstance(record, dict) else "line is no JSON object"


def is_published(path: Path) -> bool:
    """Whether a file is the published question set, by its name and by the form of its first record."""
    if not _PUBLISHED_NAME.fullmatch(path.name):
        return False
    _, first = next(read_records(path), (0, ""))
    return not isinstance(first, str) and ground_truth(first) is not None


def question_count(record: Mapping[str, Any] | str) -> int:
    """How many inputs a record is: its questions in the CapRL form, else one."""
    questions = None if isinstance(record, str) else ground_truth(record)
    return max(1, len(questions)) if questions is not None else 1


def ground_truth(record: Mapping[str, Any]) -> list[Any] | None:
    """The questions of a CapRL-Video-QA record, or None when it has not that form."""
    model = record.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, Mapping) else None
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except (ValueError, RecursionError):
            return None
    return truth if isinstance(truth, list) else None


def read_question(record: Mapping[str, Any], place: int, *, columns: Columns, where: Where) -> ReadItem:
    """Question ``place`` of a record in either form.

    Raises:
        Refusal: with the named reason and the place.
    """
    questions = ground_truth(record)
    if questions is None:
        return _trainer_item(record, columns, where)
    if not questions:
        raise Refusal("no_question", "caption row holds no question", where=where)
    fields = questions[place]
    if not isinstance(fields, Mapping):
        raise Refusal("malformed", "question is no object", got=fields, where=where)
    text = fields.get("question")
    if not isinstance(text, str) or not text.strip():
        raise Refusal("malformed", "question has no text", got=text, where=where)
    options = structured_options(fields.get("choices", fields.get("options")), where=where)
    answer = answer_place(fields.get("answer"), options, where=where)
    video = _video(record, columns, where)
    return ReadItem(question=text.strip(), options=tuple(options), answer=answer, video=video)


def _trainer_item(record: Mapping[str, Any], columns: Columns, where: Where) -> ReadItem:
    verifier = record.get("verifier")
    if verifier is not None and verifier not in VERIFIERS:
        raise Refusal("malformed", "verifier is not one of multiple choice", got=verifier,
                      allowed=", ".join(VERIFIERS), where=where)  # fmt: skip
    text = _prompt_text(_first(record, columns.question, ("question", "prompt", "problem")), where)
    structured = _first(record, columns.options, ("options", "choices"))
    if structured is not None:
        options = structured_options(structured, where=where)
        question = _without_options(text, options)
    else:
        question, options = options_from_prose(text, where=where)
    if not question:
        raise Refusal("malformed", "question has no text before its options", got=text, where=where)
    answer = answer_place(_first(record, columns.answer, ("expected_answer", "answer")), options, where=where)
    video = _video(record, columns, where)
    return ReadItem(question=question, options=tuple(options), answer=answer, video=video)


def _first(record: Mapping[str, Any], column: str | None, names: tuple[str, ...]) -> Any:
    chosen = (column,) if column is not None else names
    return next((record[name] for name in chosen if record.get(name) is not None), None)


def _prompt_text(value: object, where: Where) -> str:
    """The text of a prompt: a string, or the user text of a chat."""
    if isinstance(value, list):
        contents = [
            turn.get("content") for turn in value if isinstance(turn, Mapping) and turn.get("role") == "user"
        ]
        value = contents[0] if len(contents) == 1 else None
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, Mapping) and part.get("type") != "video"]
        value = "\n".join(text for text in texts if isinstance(text, str))
    if not isinstance(value, str) or not value.strip():
        raise Refusal("malformed", "row has no question text", got=value, where=where)
    text = value.strip()
    for mark in _MEDIA_MARKS:
        text = text.removeprefix(mark).removesuffix(mark).strip()
    return text


def _without_options(text: str, options: list[str]) -> str:
    """The question alone, when the text repeats the structured options and an instruction after it."""
    try:
        question, found = options_from_prose(text, where=Where())
    except Refusal:
        found, question = [], text
    if [" ".join(one.split()) for one in found] != [" ".join(one.split()) for one in options]:
        question = text
    lines = question.split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].strip().lower().startswith(_INSTRUCTIONS)):
        lines.pop()
    return "\n".join(lines).strip()


def _video(record: Mapping[str, Any], columns: Columns, where: Where) -> str:
    value = _first(record, columns.video, ("video", "videos"))
    if isinstance(value, list):
        if len(value) != 1:
            raise Refusal("malformed", "row needs exactly one video", got=value, where=where)
        value = value[0]
    if isinstance(value, Mapping):
        value = value.get("video") or value.get("path")
    if not isinstance(value, str) or not value:
        raise Refusal("malformed", "row names no video", got=value, where=where)
    return value
