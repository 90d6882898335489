# SPDX-License-Identifier: Apache-2.0
"""``gym-video baselines``: what a data set pays a policy that does not look."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import open_lines, parse_object
from nemo_gym_video.commands.validate import row_kind
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.boxed.options import boxed_row
from nemo_gym_video.tasks.tracking.blind import blind_rewards
from nemo_gym_video.tasks.tracking.track_row import TrackRow

_FULL = 1 - 1e-9


@dataclass(slots=True)
class DataSet:
    """What was counted of one data set."""

    rows: int = 0
    bad: int = 0
    rewards: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    letters: Counter[str] = field(default_factory=Counter)
    first_right: int = 0
    flagged: list[dict[str, Any]] = field(default_factory=list)

    def means(self) -> dict[str, float]:
        """Mean reward of every policy that applies."""
        means = {name: sum(values) / len(values) for name, values in self.rewards.items()}
        questions = self.letters.total()
        if questions:
            letter, count = self.letters.most_common(1)[0]
            means["first option"] = self.first_right / questions
            means[f"always {letter}"] = count / questions
        return means


def baselines(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Rows, one a line; - is stdin.")],
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one JSON object a data set instead.")] = False,
) -> None:
    """Report the reward of policies that do not look at the video, for every data set in the files.

    A data set is the rows of one agent. Tracking rows that such a policy answers in full teach nothing and are
    listed. Exit code 1 when a row cannot be read.
    """
    sets: dict[str, DataSet] = {}
    for file in files:
        with open_lines(file) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    count_row(sets, line, Where(file="stdin" if file == "-" else file, line=number))
    if jsonl:
        for name, data_set in sets.items():
            print(json.dumps(as_json(name, data_set)))
    else:
        _print_table(sets)
    if not sets or any(data_set.bad for data_set in sets.values()):
        raise typer.Exit(1)


def count_row(sets: dict[str, DataSet], line: str, where: Where) -> None:
    """Add one line to its data set."""
    name = "unreadable"
    try:
        row = parse_object(line, where)
        name = data_set_name(row)
        if row_kind(row) == "boxed":
            question = boxed_row(row, where=where)
            data_set = sets.setdefault(name, DataSet())
            data_set.letters[question.expected_answer] += 1
            data_set.first_right += next(iter(question.options)) == question.expected_answer
        else:
            rewards = blind_rewards(TrackRow.from_row(row, where))
            data_set = sets.setdefault(name, DataSet())
            for policy, reward in rewards.items():
                data_set.rewards[policy].append(reward)
            full = [policy for policy, reward in rewards.items() if reward >= _FULL]
            if full:
                data_set.flagged.append({"where": str(where), "policies": full})
    except RowError as error:
        print(error, file=sys.stderr)
        data_set = sets.setdefault(name, DataSet())
        data_set.bad += 1
    data_set.rows += 1


def data_set_name(row: Mapping[str, Any]) -> str:
    """The row's agent, which tells the data sets of a mixed file apart; else its kind or task."""
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, Mapping) else None
    if not isinstance(name, str):
        name = str(row.get("task")) if row_kind(row) == "tracking" else row_kind(row)
    return name.encode("utf-8", "backslashreplace").decode()


def as_json(name: str, data_set: DataSet) -> dict[str, Any]:
    """The ``--jsonl`` form of one data set."""
    return {
        "data_set": name,
        "rows": data_set.rows,
        "unreadable": data_set.bad,
        "rewards": data_set.means(),
        "answered_blind": data_set.flagged,
    }


def _print_table(sets: Mapping[str, DataSet]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("data set", "policy", box=None, pad_edge=False)
    table.add_column("reward", justify="right")
    table.add_column("rows", justify="right")
    for name, data_set in sets.items():
        for policy, mean in data_set.means().items():
            table.add_row(Text(name), policy, f"{mean:.4f}", str(data_set.rows - data_set.bad))
    console = Console()
    console.print(table)
    for name, data_set in sets.items():
        for flag in data_set.flagged:
            line = f"{flag['where']}: {name}: answered in full by {', '.join(flag['policies'])}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
