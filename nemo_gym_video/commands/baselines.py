# SPDX-License-Identifier: Apache-2.0
"""``gym-video baselines``: what a data set pays a policy that does not look."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import open_lines, parse_object
from nemo_gym_video.commands.task_choice import TaskChoice, TaskOption
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.blind_policies import BlindSum, blind_rewards_of, solved_blind


@dataclass(slots=True)
class DataSet:
    """What was counted of one data set."""

    rows: int = 0
    bad: int = 0
    total: BlindSum = field(default_factory=BlindSum)
    flagged: list[dict[str, Any]] = field(default_factory=list)


def baselines(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Rows, one a line; - is stdin.")],
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print one JSON object a data set instead.")] = False,
    task: TaskOption = None,
) -> None:
    """Report the reward of policies that do not look at the video, for every data set in the files.

    A data set is the rows of one agent. Rows that such a policy answers in full, and which so teach nothing, are
    listed: not for a choice between options, where some letter is always right. Exit code 1 when a row
    cannot be read.
    """
    sets: dict[str, DataSet] = {}
    tasks = TaskChoice(task or ())
    for file in files:
        with open_lines(file) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    count_row(sets, line, Where(file="stdin" if file == "-" else file, line=number), tasks)
    if jsonl:
        for name, data_set in sets.items():
            print(json.dumps(as_json(name, data_set)))
    else:
        _print_table(sets)
    if not sets or any(data_set.bad for data_set in sets.values()):
        raise typer.Exit(1)


def count_row(sets: dict[str, DataSet], line: str, where: Where, tasks: TaskChoice) -> None:
    """Add one line to its data set."""
    name = "unreadable"
    try:
        row = parse_object(line, where)
        name = _agent(row) or "unknown"
        task = tasks.of(row, where)
        name = _agent(row) or str((task.subset_key and row.get(task.subset_key)) or task.name)
        rewards = blind_rewards_of(task, task.read_row(row, where))
        data_set = sets.setdefault(_printable(name), DataSet())
        data_set.total.add(rewards)
        if full := solved_blind(task, rewards):
            data_set.flagged.append({"where": str(where), "policies": full})
    except RowError as error:
        print(_printable(str(error)), file=sys.stderr)
        data_set = sets.setdefault(_printable(name), DataSet())
        data_set.bad += 1
    data_set.rows += 1


def _agent(row: Mapping[str, Any]) -> str | None:
    """The row's agent, which tells the data sets of a mixed file apart."""
    agent = row.get("agent_ref")
    name = agent.get("name") if isinstance(agent, Mapping) else None
    return name if isinstance(name, str) else None


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def as_json(name: str, data_set: DataSet) -> dict[str, Any]:
    """The ``--jsonl`` form of one data set."""
    return {
        "data_set": name,
        "rows": data_set.rows,
        "unreadable": data_set.bad,
        "rewards": data_set.total.means(),
        "answered_blind": data_set.flagged,
    }


def _print_table(sets: Mapping[str, DataSet]) -> None:
    # start-up: rich is for people's tables only
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("data set", "policy", box=None, pad_edge=False)
    table.add_column("reward", justify="right")
    table.add_column("rows", justify="right")
    for name, data_set in sets.items():
        for policy, mean in data_set.total.means().items():
            table.add_row(Text(name), policy, f"{mean:.4f}", str(data_set.rows - data_set.bad))
    console = Console()
    console.print(table)
    for name, data_set in sets.items():
        for flag in data_set.flagged:
            line = f"{flag['where']}: {name}: answered in full by {', '.join(flag['policies'])}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
