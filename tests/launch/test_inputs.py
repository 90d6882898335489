# SPDX-License-Identifier: Apache-2.0
"""Rows of a run: every line on its own, bad ones by file and line."""

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import RowError
from nemo_gym_video.launch.inputs import read_inputs

AGENTS = ("box_agent", "point_agent")


def row(**more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "hello"}, **more}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_rows_go_to_the_agent_they_name(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.jsonl", row(agent_ref={"name": "box_agent"}), "", row(agent_ref={"name": "point_agent"})
    )
    inputs = read_inputs([(None, path)], AGENTS)
    assert [(item.agent, str(item.where)) for item in inputs.rows] == [
        ("box_agent", "rows.jsonl:1"),
        ("point_agent", "rows.jsonl:3"),
    ]
    assert inputs.problems == []


def test_a_default_agent_takes_rows_that_name_none(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", row())
    assert [item.agent for item in read_inputs([("box_agent", path)], AGENTS).rows] == ["box_agent"]
    (problem,) = read_inputs([(None, path)], AGENTS).problems
    assert (
        str(problem) == "rows.jsonl:1: row names no agent; allowed: agent_ref.name, one of box_agent, point_agent"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("3", "not a JSON object"),
        ({}, "row has no responses_create_params"),
        ({"responses_create_params": {}}, "row has no responses_create_params"),
        (row(agent_ref={"name": "nobody"}), "agent is unknown; got 'nobody'; allowed: box_agent, point_agent"),
        (row(agent_ref="box_agent"), "agent_ref names no agent"),
        (row(agent_ref={"name": 3}), "agent_ref names no agent"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_and_the_rest_goes_on(tmp_path: Path, line: Any, problem: str) -> None:
    path = write(tmp_path / "rows.jsonl", row(), line, row())
    inputs = read_inputs([("box_agent", path)], AGENTS)
    assert [str(item.where) for item in inputs.rows] == ["rows.jsonl:1", "rows.jsonl:3"]
    (found,) = inputs.problems
    assert str(found).startswith(f"rows.jsonl:2: {problem}")


def test_bytes_that_are_no_text_are_one_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xff\xfe\n" + json.dumps(row()).encode() + b"\n")
    inputs = read_inputs([("box_agent", path)], AGENTS)
    assert (len(inputs.rows), len(inputs.problems)) == (1, 1)


def test_a_limit_counts_lines_of_each_file(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", row(), row(), row())
    two = write(tmp_path / "two.jsonl", row())
    inputs = read_inputs([("box_agent", one), ("point_agent", two)], AGENTS, limit=2)
    assert [str(item.where) for item in inputs.rows] == ["one.jsonl:1", "one.jsonl:2", "two.jsonl:1"]


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="does not exist"):
        read_inputs([(None, tmp_path / "none.jsonl")], AGENTS)


def test_written_rows_carry_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", row(options=[{"A": "x"}]), row())
    inputs = read_inputs([("box_agent", path)], AGENTS)
    inputs.write(tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["_ng_task_index"] for one in written] == [0, 1]
    assert written[0]["options"] == [{"A": "x"}]
    assert written[1]["agent_ref"] == {"type": "responses_api_agents", "name": "box_agent"}
