# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of a run: each line is checked on its own, a bad one is said by file and line and left out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import RowError, Where

_INDEX = "_ng_task_index"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """One good row, the agent it goes to, and the line it came from."""

    row: dict[str, Any]
    agent: str
    where: Where


@dataclass(slots=True)
class Inputs:
    """The rows of a run in order, and what was wrong with the lines that are not among them."""

    rows: list[InputRow] = field(default_factory=list)
    problems: list[RowError] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write the rows for Gym's collection; each gets its place in the list as its task index."""
        with path.open("w", encoding="utf-8") as out:
            for index, item in enumerate(self.rows):
                agent_ref = {"type": "responses_api_agents", "name": item.agent}
                out.write(json.dumps({**item.row, "agent_ref": agent_ref, _INDEX: index}) + "\n")


def read_inputs(
    files: Iterable[tuple[str | None, Path]], agents: Collection[str], *, limit: int | None = None
) -> Inputs:
    """Read (agent for rows that name none, file) pairs. ``limit`` is the most rows to take from each file.

    Raises:
        RowError: a file does not exist.
    """
    inputs = Inputs()
    for default_agent, path in files:
        if not path.is_file():
            raise RowError("input file does not exist or is no regular file", code="row.file", got=str(path))
        taken = 0
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, start=1):
                if limit is not None and taken >= limit:
                    break
                if not line.strip():
                    continue
                taken += 1
                where = Where(file=path.name, line=number)
                try:
                    inputs.rows.append(_read_row(line, default_agent, agents, where))
                except RowError as error:
                    inputs.problems.append(error)
    return inputs


def _read_row(line: str, default_agent: str | None, agents: Collection[str], where: Where) -> InputRow:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowError(f"not valid JSON ({error})"[:300], code="row.json", where=where) from error
    if not isinstance(row, dict):
        raise RowError("not a JSON object", code="row.json", got=row, allowed="one object a line", where=where)
    params = row.get("responses_create_params")
    if not isinstance(params, dict) or not params.get("input"):
        raise RowError(
            "row has no responses_create_params with an input", code="row.no_input", got=params, where=where
        )
    reference = row.get("agent_ref")
    agent = reference.get("name") if isinstance(reference, dict) else None
    if reference is not None and not isinstance(agent, str):
        raise RowError(
            "agent_ref names no agent", code="row.unknown_agent", got=reference, allowed='{"name": …}', where=where
        )
    agent = agent or default_agent
    if agent is None:
        raise RowError(
            "row names no agent",
            code="row.unknown_agent",
            allowed="agent_ref.name, one of " + ", ".join(agents),
            where=where,
        )
    if agent not in agents:
        raise RowError(
            "agent is unknown", code="row.unknown_agent", got=agent, allowed=", ".join(agents), where=where
        )
    return InputRow(row=row, agent=agent, where=where)
