# SPDX-License-Identifier: Apache-2.0
"""``gym-video verify``, ``validate`` and ``baselines`` as a shell sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nemo_gym_video.cli import build_app

BOXED = {"options": [{"A": "x"}, {"B": "White"}], "expected_answer": "B"}
TARGETS = [
    {"frame": 1, "visible": True, "mask": {"size": [10, 10], "counts": [0, 50, 50]}},
    {"frame": 2, "visible": False},
]
TRACKS = {"task": "pt", "objects": [{"id": 1, "targets": TARGETS}]}
RIGHT = (
    '<answer>{"tracks": [{"point": 1, "frame": 1, "xy": [100, 900]}, {"point": 1, "frame": 2, "visible": false}]}'
    "</answer>"
)

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def call(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(build_app(arguments[0]), arguments, input=stdin)

    return call


def lines(*bodies: Any) -> str:
    return "".join((body if isinstance(body, str) else json.dumps(body)) + "\n" for body in bodies)


def results(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_lines_are_scored_in_order(run: Run, tmp_path: Path) -> None:
    text = lines(
        {"row": BOXED, "text": r"\boxed{B}"},
        "",
        {"row": BOXED, "text": r"\boxed{A}"},
        {**BOXED, "text": "no"},
        {"row": BOXED, "output": [{"type": "message", "role": "assistant", "content": r"\boxed{B}"}]},
    )
    done = run("verify", "boxed", "--jsonl", stdin=text)
    assert done.exit_code == 0
    assert [(line["reward"], line["reason"], line["mask_sample"]) for line in results(done)] == [
        (1, "correct", False), (0, "wrong_letter", False), (0, "no_box", False), (1, "correct", False),
    ]  # fmt: skip
    assert "4 measured, mean reward 0.5000; 0 not measurable" in done.stderr
    file = tmp_path / "lines.jsonl"
    file.write_text(text)
    assert run("verify", "boxed", "--jsonl", str(file)).stdout == done.stdout
    assert run("verify", "boxed", str(file)).stdout == done.stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("garbage", "bad_line"),
        ("[1]", "bad_line"),
        ("[" * 100_000, "bad_line"),
        ('{"text": ' + "9" * 5000 + "}", "bad_line"),
        ({"row": BOXED}, "bad_line"),
        ({"row": BOXED, "text": 1}, "bad_line"),
        ({"row": BOXED, "text": "x", "output": []}, "bad_line"),
        ({"row": BOXED, "response": {"output": "\ud800"}}, "no_box"),
        ({"row": {}, "text": "x"}, "bad_row"),
        ({"row": None, "text": "x"}, "bad_row"),
        ({"row": [], "text": "\ud800"}, "bad_row"),
    ],
    ids=range(11),
)
def test_a_line_that_is_no_measurement_is_masked_and_counted(run: Run, line: Any, reason: str) -> None:
    good = {"row": BOXED, "text": r"\boxed{B}"}
    done = run("verify", "boxed", "--jsonl", stdin=lines(good, line, good))
    first, odd, last = results(done)
    assert first == last
    assert odd["reason"] == reason
    masked = reason in ("bad_line", "bad_row")
    assert odd["mask_sample"] == masked
    assert odd["failure_kind"] == (f"nemo_gym_video:{reason}" if masked else None)
    assert done.exit_code == int(masked)
    assert f"{2 if masked else 3} measured" in done.stderr


def test_rules_and_modes(run: Run) -> None:
    thought = {"row": TRACKS, "text": f"<think>{RIGHT}</think>"}
    text = lines(
        thought, thought | {"rules": "baseline"}, thought | {"rules": "strict"}, thought | {"rules": "own"}
    )
    rewards = [line["reward"] for line in results(run("verify", "tracks", "--jsonl", stdin=text))]
    assert rewards == [0, 1, 0, 0]
    done = run("verify", "tracks", "--rules", "baseline", "--jsonl", stdin=text)
    assert [line["reward"] for line in results(done)] == [1, 1, 0, 0]
    assert [line["mask_sample"] for line in results(done)] == [False, False, False, True]
    assert done.exit_code == 1
    half = run("verify", "tracks", "--absence-score", "0.5", stdin=lines({"row": TRACKS, "text": RIGHT}))
    assert results(half)[0]["reward"] == 0.75
    lenient = {"row": BOXED, "text": r"\boxed{white}"}
    assert results(run("verify", "boxed", stdin=lines(lenient)))[0]["reward"] == 0
    done = run("verify", "boxed", "--grading-mode", "lenient_boxed", stdin=lines(lenient))
    assert results(done)[0]["reward"] == 1


def test_whole_rollouts(run: Run, tmp_path: Path) -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": RIGHT}]}]
    rollout = {**TRACKS, "response": {"output": output}, "reward": 0.25, "agent_ref": {"name": "a"}}
    broken = rollout | {"mask_sample": True, "failure_kind": "nemo_gym_video:alignment"}
    file = tmp_path / "rollouts.jsonl"
    file.write_text(lines(rollout, broken, {"reward": 1}))
    done = run("verify", "tracks", "--rollouts", str(file))
    good, masked, odd = results(done)
    assert (good["reward"], good["mask_sample"]) == (1, False)
    assert good["reward_components"] == {"localization": 0.5, "absence": 0.5}
    assert len(good["cells"]) == 2
    assert (masked["mask_sample"], masked["failure_kind"]) == (True, "nemo_gym_video:alignment")
    assert odd["reason"] == "bad_line"
    assert done.exit_code == 1


def test_missing_file_is_one_line(run: Run, tmp_path: Path) -> None:
    done = run("verify", "boxed", str(tmp_path / "none.jsonl"))
    assert done.exit_code == 1
    assert "does not exist" in str(done.exception)


def test_validate_lists_every_problem(run: Run, tmp_path: Path) -> None:
    bad = {"task": "pt", "objects": [{"id": 1, "targets": [{"frame": -1, "visible": 1}]}], "absence_score": "x"}
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(BOXED, TRACKS, bad, "oops", {"a": "\ud800"}, BOXED | {"expected_answer": "\ud800"}))
    done = run("validate", str(file))
    assert done.exit_code == 1
    found = done.stdout.splitlines()
    assert len(found) == 6
    assert [line.removeprefix(f"{file}:").split(":")[0].split(",")[0] for line in found] == list("333456")
    assert "6 rows (2 boxed_mcqa, 2 sav_tracks, 1 unknown, 1 unreadable), 4 with problems" in done.stderr
    file.write_text(lines(BOXED, TRACKS))
    clean = run("validate", str(file))
    assert (clean.exit_code, clean.stdout) == (0, "")
    file.write_text("\n")
    assert run("validate", str(file)).exit_code == 1


def test_baselines_report_policies_that_do_not_look(run: Run, tmp_path: Path) -> None:
    still = {"agent_ref": {"name": "sav_pt_tracks_agent"}, "task": "pt", "objects": [
        {"id": 1, "reference_xy": [100, 500], "targets": TARGETS[:1]},
    ]}  # fmt: skip
    gone = still | {"objects": [{"id": 1, "reference_xy": [100, 500], "targets": TARGETS[1:]}]}
    asked = {"agent_ref": {"name": "[mcqa]"}} | BOXED
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(still, gone, asked, asked, asked | {"expected_answer": "A"}))
    done = run("baselines", str(file), "--jsonl")
    assert done.exit_code == 0
    tracks, boxed = results(done)
    assert tracks["rewards"] == {"all absent": 0.5, "at reference": 0.5, "at centre": 0.0}
    assert [(flag["where"].rsplit(":")[-1], flag["policies"]) for flag in tracks["answered_blind"]] == [
        ("1", ["at reference"]), ("2", ["all absent"]),
    ]  # fmt: skip
    assert boxed["rewards"] == {"first option": pytest.approx(1 / 3), "always B": pytest.approx(2 / 3)}
    assert boxed["answered_blind"] == []
    table = run("baselines", str(file))
    assert "[mcqa]" in table.stdout
    assert f"{file}:2: sav_pt_tracks_agent: answered in full by all absent" in table.stdout
    file.write_text(lines(still, {"task": "pt", "objects": []}))
    broken = run("baselines", str(file))
    assert broken.exit_code == 1
    assert "objects" in broken.stderr


def test_a_mixed_file_is_scored_line_by_line_and_summed_by_task(run: Run, tmp_path: Path) -> None:
    text = lines(
        {"row": BOXED, "text": r"\boxed{B}"}, {"row": TRACKS, "text": RIGHT}, {"row": {"a": 1}, "text": "x"}
    )
    done = run("verify", stdin=text)
    assert [line["reward"] for line in results(done)] == [1, 1, 0]
    assert results(done)[2]["reason"] == "bad_line"
    told = done.stderr.splitlines()
    assert told[0].startswith("boxed_mcqa: 1 measured, mean reward 1.0000")
    assert told[1].startswith("sav_tracks: 1 measured, mean reward 1.0000")
    assert told[2].startswith("unknown: 0 measured")
    file = tmp_path / "lines.jsonl"
    file.write_text(text)
    assert results(run("verify", str(file)))[:2] == results(done)[:2]


def test_a_task_of_someone_else(run: Run, tmp_path: Path) -> None:
    code = tmp_path / "task.py"
    code.write_text(
        "from pydantic import BaseModel, Field\n"
        "from nemo_gym_video.tasks.task import Score, Task, TaskSettings\n"
        "class Row(BaseModel):\n    count: int = Field(ge=0)\n"
        "class Own(TaskSettings):\n    bonus: float = 0\n"
        "class Count(Task[Row]):\n    Settings = Own\n"
        "    def score(self, row, answer):\n"
        "        return Score(float(answer.boxed == str(row.count)) + self.settings.bonus)\n"
        "    def blind(self, row):\n        return {'always 3': '\\\\boxed{3}'}\n"
    )
    file = tmp_path / "lines.jsonl"
    file.write_text(
        lines({"row": {"count": 3}, "text": r"\boxed{3}"}, {"row": {"count": 2}, "text": r"\boxed{3}"})
    )
    done = run("verify", str(file), "--task", f"{code}:Count", "--set", "bonus=0.5")
    assert [line["reward"] for line in results(done)] == [1.5, 0.5]
    assert run("verify", str(file), "--task", str(code)).exit_code == 0
    assert "no task has this setting" in str(
        run("verify", str(file), "--task", str(code), "--set", "x=1").exception
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text(lines({"count": 3}, {"count": -1}))
    told = run("validate", str(rows), "--task", str(code))
    assert told.exit_code == 1
    assert "field 'count'" in told.stdout
    rows.write_text(lines({"count": 3}, {"count": 4}))
    assert results(run("baselines", str(rows), "--task", str(code), "--jsonl"))[0]["rewards"] == {"always 3": 0.5}
