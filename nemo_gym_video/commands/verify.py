# SPDX-License-Identifier: Apache-2.0
"""``gym-video verify``: score answers again, without any server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from nemo_gym_video.commands.jsonl import open_lines, parse_object
from nemo_gym_video.commands.task_choice import TaskChoice, TaskOption, read_settings
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.answers.visible import Output
from nemo_gym_video.tasks.registry import AnyTask, TaskError, task_class
from nemo_gym_video.tasks.task import Answer

BAD_LINE = "nemo_gym_video:bad_line"
"""``failure_kind`` of a line that holds no answer to score."""


def verify(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK] [FILE]", help="Lines to score; - is stdin. TASK as in --task."),
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON line in, one out (always so).")] = False,
    rollouts: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file, when the lines are rollouts as Gym writes them.")
    ] = None,
    task: TaskOption = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the task; repeatable.")
    ] = None,
    rules: Annotated[str | None, typer.Option(help="Short for --set rules=…")] = None,
    grading_mode: Annotated[str | None, typer.Option(help="Short for --set grading_mode=…")] = None,
    absence_score: Annotated[
        float | None, typer.Option(min=0, max=1, help="Short for --set absence_score=…")
    ] = None,
) -> None:
    """Score answers: lines {"row": {…}, "text": "…"}, or whole rollouts, each by the task of its row.

    What a row sets itself wins over settings. Prints one result line each, in order, and a summary by task. Exit
    code 1 when a line was not measurable (mask_sample).
    """
    named, source = _words(words or [], rollouts)
    settings = read_settings(setting or [])
    short = {"rules": rules, "grading_mode": grading_mode, "absence_score": absence_score}
    settings |= {name: value for name, value in short.items() if value is not None}
    scorer = LineScorer(TaskChoice([*named, *(task or [])], settings), settings)
    with open_lines(source) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = Where(file="stdin" if source == "-" else source, line=number)
                sys.stdout.write(json.dumps(scorer.line(line, where)) + "\n")
    sys.stdout.flush()
    for summary in scorer.summaries():
        print(summary, file=sys.stderr)
    if any(tally.masked for tally in scorer.tallies.values()):
        raise typer.Exit(1)


def _words(words: list[str], rollouts: str | None) -> tuple[list[str], str]:
    """The task and the file of ``[TASK] [FILE]``: one word alone is a file unless a task has that name."""
    if len(words) > 2 or (len(words) == 2 and rollouts is not None):
        raise TaskError("too many words", got=words, allowed="[TASK] [FILE]")
    if len(words) == 2:
        return words[:1], words[1]
    if len(words) == 1 and (rollouts is not None or _names_task(words[0])):
        return words, rollouts or "-"
    return [], rollouts or (words[0] if words else "-")


def _names_task(word: str) -> bool:
    if word == "-" or Path(word).exists():
        return False
    try:
        task_class(word)
    except TaskError:
        return False
    return True


@dataclass(slots=True)
class Tally:
    """What was counted of one task's lines."""

    rewards: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    masked: int = 0

    def __str__(self) -> str:
        """One line for a person."""
        mean = sum(self.rewards) / len(self.rewards) if self.rewards else 0.0
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        return (
            f"{len(self.rewards)} measured, mean reward {mean:.4f}; {self.masked} not measurable"
            + (f"; {reasons}" if reasons else "")
        )  # fmt: skip


class LineScorer:
    """Scores lines, each by its row's task, and keeps count by task."""

    def __init__(self, tasks: TaskChoice, settings: Mapping[str, Any]) -> None:
        """``settings`` are those that the tasks have been made with."""
        self.tallies: dict[str, Tally] = {}
        self._tasks = tasks
        self._settings = dict(settings)

    def line(self, line: str, where: Where) -> dict[str, Any]:
        """The result for one line; a line that cannot be read gives a result with ``mask_sample``."""
        name = self._tasks.tasks[0].name if len(self._tasks.tasks) == 1 else "unknown"
        try:
            body = parse_object(line, where)
            output, row = _answer(body, where)
            task = self._configured(self._task(row, where), body, where)
            name = task.name
            result = _result(task, row, output, body)
        except RowError as error:
            result = {"reward": 0.0, "reason": "bad_line", "mask_sample": True, "failure_kind": BAD_LINE,
                      "failure_reason": str(error)}  # fmt: skip
        tally = self.tallies.setdefault(name, Tally())
        tally.reasons[result["reason"]] += 1
        if result["mask_sample"]:
            tally.masked += 1
        else:
            tally.rewards.append(result["reward"])
        return result

    def summaries(self) -> list[str]:
        """One line a task; without the task's name where there is but one."""
        if len(self.tallies) < 2:
            return [str(tally) for tally in self.tallies.values()] or [str(Tally())]
        return [f"{name}: {tally}" for name, tally in self.tallies.items()]

    def _task(self, row: object, where: Where) -> AnyTask:
        return self._tasks.of(row if isinstance(row, Mapping) else {}, where)

    def _configured(self, task: AnyTask, body: Mapping[str, Any], where: Where) -> AnyTask:
        """The task with the settings that a line gives beside its row."""
        fields = task.Settings.model_fields
        own = {name: body[name] for name in fields if name in body} if "row" in body else {}
        if not own:
            return task
        base = {name: value for name, value in self._settings.items() if name in fields}
        try:
            return type(task)(base | own)
        except ValidationError as error:
            problem = error.errors()[0]
            raise RowError(f"{problem['loc'][0]}: {problem['msg']}", got=problem["input"], where=where) from error


def _result(task: AnyTask, row: object, output: Output, body: Mapping[str, Any]) -> dict[str, Any]:
    result = task.score_raw(row, Answer(output)).to_json()
    if body.get("mask_sample") is True and not result["mask_sample"]:
        # What broke the sample when it was rolled out (its media, say) is not in the text: it stays broken.
        kind = body.get("failure_kind")
        result.update(mask_sample=True, failure_kind=kind if isinstance(kind, str) else None,
                      failure_reason="the rollout is masked already")  # fmt: skip
    return result


def _answer(body: Mapping[str, Any], where: Where) -> tuple[Output, object]:
    """What was answered and the row it answers: ``text``, ``output`` or ``response.output``, and ``row``."""
    given = [body[name] for name in ("text", "output") if body.get(name) is not None]
    response = body.get("response")
    if not given and isinstance(response, Mapping) and "output" in response:
        given = [response["output"]]
    if len(given) != 1 or not isinstance(given[0], str | list):
        raise RowError("line holds no answer", got=sorted(body), allowed='one of "text", "output", "response"',
                       where=where)  # fmt: skip
    # A rollout carries its row's fields beside the response.
    return given[0], body.get("row", body)
