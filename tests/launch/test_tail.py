# SPDX-License-Identifier: Apache-2.0
"""Following Gym's files while they grow, and what they add up to."""

import json
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import Where
from nemo_gym_video.launch.inputs import InputRow
from nemo_gym_video.launch.tail import LineFollower, Results

ROWS = [InputRow(row={}, agent=agent, where=Where(file="rows.jsonl", line=line))
        for line, agent in ((1, "a"), (4, "a"), (7, "b"))]  # fmt: skip
ENVIRONMENTS = {"a": "questions", "b": "tracks"}


def append(path: Path, *lines: Any) -> None:
    with path.open("a") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))


def test_only_whole_new_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    follower = LineFollower(path)
    assert list(follower.new_objects()) == []
    path.write_text('{"a": 1}\n{"a"')
    assert list(follower.new_objects()) == [{"a": 1}]
    with path.open("a") as stream:
        stream.write(': 2}\n{"a": 3}\n')
    assert list(follower.new_objects()) == [{"a": 2}, {"a": 3}]
    assert list(follower.new_objects()) == []


def test_results_add_up_by_environment(tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    results = Results(ROWS, ENVIRONMENTS, output)
    append(output, {"_ng_task_index": 0, "reward": 1.0, "media_tokens": 10},
           {"_ng_task_index": 1, "reward": 0.0, "media_tokens": 30})  # fmt: skip
    results.update()
    append(output, {"_ng_task_index": 2, "reward": 0.5})
    results.update()
    questions, tracks = results.tallies["questions"], results.tallies["tracks"]
    assert (questions.rows, questions.rollouts) == (2, 2)
    assert (questions.mean_reward, questions.mean_media_tokens) == (0.5, 20)
    assert (tracks.rows, tracks.mean_reward, tracks.mean_media_tokens) == (1, 0.5, None)
    assert (results.done, results.problems) == (3, {})


def test_masked_samples_and_failures_are_no_zeros(tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    results = Results(ROWS, ENVIRONMENTS, output)
    masked = {"mask_sample": True, "failure_kind": "nemo_gym_video:bad_row", "failure_reason": "no options"}
    append(output, {"_ng_task_index": 0, "reward": 0.0, **masked})
    failure = {"_ng_task_index": 1, "reward": 0.0, "failure_kind": "nemo_gym_video:media_source",
               "failure_reason": "row 1, message 0, part 2: file cannot be opened"}  # fmt: skip
    append(tmp_path / "rollouts_failures.jsonl", failure, failure)
    results.update()
    assert results.tallies["questions"].mean_reward is None
    assert results.done == 3
    told = {str(problem): count for problem, count in results.problems.items()}
    assert told == {
        "rows.jsonl:1: no options": 1,
        "rows.jsonl:4, message 0, part 2: file cannot be opened": 2,
    }


def test_gyms_own_failures_are_told_in_one_line(tmp_path: Path) -> None:
    results = Results(ROWS, ENVIRONMENTS, tmp_path / "rollouts.jsonl")
    append(tmp_path / "rollouts_failures.jsonl", {"_ng_task_index": 2, "_ng_failure_message": "500, message='x'",
                                                  "_ng_failure_response_body": "line one\nline two"})  # fmt: skip
    results.update()
    (problem,) = results.problems
    assert str(problem) == "rows.jsonl:7: 500, message='x' line one line two"
