# SPDX-License-Identifier: Apache-2.0
"""Scoring in worker processes, alone and behind the servers' HTTP."""

import asyncio
import json
import os
import runpy
import signal
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym_video.servers.gym_root import search_root
from nemo_gym_video.servers.scoring_workers import RequestRefused, ScoringWorkers, WorkerFailed
from nemo_gym_video.tasks.registry import TaskError, task_of_row

SETTINGS = {"grading_mode": "strict_single_letter_boxed"}
ROW = {"options": [{"A": "red"}, {"B": "blue"}], "expected_answer": "B"}


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}


def rollout(text: str, **more: Any) -> dict[str, Any]:
    response = {"id": "resp", "created_at": 1, "model": "m", "object": "response", "output": [message(text)],
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    return {**ROW, "responses_create_params": {"input": "Which?"}, "response": response, **more}


def score(workers: ScoringWorkers, body: object) -> Any:
    async def once() -> bytes:
        try:
            return await workers.score(body if isinstance(body, bytes) else json.dumps(body).encode())
        finally:
            await workers.close()

    return json.loads(asyncio.run(once()))


def boxed(limit: int = 1) -> ScoringWorkers:
    return ScoringWorkers("boxed_mcqa", SETTINGS, limit=limit)


def test_the_whole_rollout_comes_back_with_its_score() -> None:
    body = rollout("\\boxed{B}", note={"kept": [1]})
    answer = score(boxed(), body)
    assert {key: answer[key] for key in body} == body
    assert (answer["reward"], answer["reason"], answer["mask_sample"]) == (1.0, "correct", False)


def test_an_earlier_score_is_replaced() -> None:
    answer = score(boxed(), rollout("\\boxed{A}", reward=1.0, reason="correct", mask_sample=True))
    assert (answer["reward"], answer["reason"], answer["mask_sample"]) == (0.0, "wrong_letter", False)


@pytest.mark.parametrize("body", [b"{", b"[]", {"response": None}, {"response": {"output": "x"}}, {}])
def test_what_is_no_rollout_is_refused_and_the_worker_lives(body: Any) -> None:
    workers = boxed()

    async def both() -> bytes:
        with pytest.raises(RequestRefused):
            await workers.score(body if isinstance(body, bytes) else json.dumps(body).encode())
        (worker,) = workers._idle
        answer = await workers.score(json.dumps(rollout("\\boxed{B}")).encode())
        assert workers._idle == [worker]
        await workers.close()
        return answer

    assert json.loads(asyncio.run(both()))["reward"] == 1.0


def test_many_at_once_share_few_workers_and_keep_their_answers_apart() -> None:
    workers = boxed(limit=2)

    async def many() -> list[bytes]:
        bodies = [rollout(f"\\boxed{{{'AB'[number % 2]}}}", number=number) for number in range(40)]
        answers = await asyncio.gather(*(workers.score(json.dumps(body).encode()) for body in bodies))
        assert len(workers._idle) == 2
        await workers.close()
        return answers

    answers = [json.loads(answer) for answer in asyncio.run(many())]
    assert [(answer["number"], answer["reward"]) for answer in answers] == [(n, float(n % 2)) for n in range(40)]


def test_a_worker_that_is_killed_costs_one_request() -> None:
    workers = boxed()

    async def killed() -> bytes:
        body = json.dumps(rollout("\\boxed{B}")).encode()
        await workers.score(body)
        os.kill(workers._idle[0].pid, signal.SIGKILL)
        await workers._idle[0].wait()
        with pytest.raises(WorkerFailed):
            await workers.score(body)
        answer = await workers.score(body)
        await workers.close()
        return answer

    assert json.loads(asyncio.run(killed()))["reward"] == 1.0


def test_a_cancelled_request_does_not_answer_the_next() -> None:
    workers = boxed()

    async def cancelled() -> bytes:
        first = asyncio.ensure_future(workers.score(json.dumps(rollout("\\boxed{A}")).encode()))
        await asyncio.sleep(0.05)
        first.cancel()
        answer = await workers.score(json.dumps(rollout("\\boxed{B}")).encode())
        await workers.close()
        return answer

    assert json.loads(asyncio.run(cancelled()))["reward"] == 1.0


@pytest.mark.parametrize("task", ["boxed_mcqa", "sav_tracks", "clip_explorer", "sav_stream"])
def test_http_gives_what_the_parsed_path_gives(task: str) -> None:
    app = runpy.run_path(str(search_root() / "verifiers" / "video_verifier" / "app.py"))
    fixture = app["VERIFIER_FIXTURE"]
    server = fixture.server_factory()(task=task, scoring_processes=1)
    cases = [json.loads(line) for line in fixture.cases_path.read_text().splitlines()]
    cases = [case for case in cases if task_of_row(case["request"]).name == task]
    assert len(cases) >= 7
    with TestClient(server.setup_webserver()) as client:
        for case in cases:
            answer = client.post("/verify", json=case["request"])
            if case["kind"] == "malformed":
                assert answer.status_code == 422
                continue
            parsed = asyncio.run(server.verify(fixture.request_model.model_validate(case["request"])))
            assert answer.json()["reward"] == parsed.reward == case["expected_reward"]
            assert answer.json()["reason"] == parsed.reason
        assert client.get("/reverify_mode").json() == "stateless"


def test_a_task_that_cannot_be_loaded_is_told_when_the_worker_starts() -> None:
    async def start() -> None:
        await ScoringWorkers("nowhere.tasks:Count", {}, limit=1).warm_up()

    with pytest.raises(TaskError, match=r"nowhere\.tasks:Count cannot be imported .*tried: "):
        asyncio.run(start())
