# SPDX-License-Identifier: Apache-2.0
"""The multi-turn verifier servers over HTTP: sessions, refusals, and what thousands of them leave behind."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from nemo_gym_video.servers.gym_root import search_root
from nemo_gym_video.servers.verifier import ScoringRequest
from tests.servers.in_process import example_rows, message, verifier

ASK = '<request>{"clip": {"start": 1.0, "end": 1.5}}</request>'
CROP = '<request>{"crop": {"time": 1.0, "box": [0, 0, 500, 500]}}</request>'
ANSWER = "\\boxed{A}"


def explorer(store: Path, **settings: Any) -> Any:
    roots = ["data"]
    return verifier(
        "clip_explorer", environment="clip_explorer", media_roots=roots, media_store=str(store), **settings
    )


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(explorer(tmp_path / "store").setup_webserver()) as client:
        yield client


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    return example_rows("clip_explorer")[0]


def step(client: TestClient, text: str, **more: Any) -> Any:
    return client.post("/step", json={"output": [message(text)], **more})


def open_sessions(client: TestClient) -> int:
    return int(client.get("/sessions").json()["open"])


def test_seed_step_verify_close(client: TestClient, row: dict[str, Any]) -> None:
    seeded = client.post("/seed_session", json=row)
    assert [part["type"] for part in seeded.json()["observation"]] == ["input_text", "input_video"]
    assert open_sessions(client) == 1
    shown = step(client, ASK).json()
    assert [part["type"] for part in shown["observation"]] == ["input_text", "input_video"]
    assert not shown["done"]
    done = step(client, ANSWER).json()
    assert done["done"]
    assert done["reason"] == "answered"
    assert done["observation"] == []
    response = {"id": "r", "created_at": 1, "model": "m", "object": "response", "parallel_tool_calls": True,
                "tool_choice": "auto", "tools": [], "output": [message(ANSWER)]}  # fmt: skip
    verified = client.post("/verify", json={**row, "episode": done["info"], "response": response}).json()
    assert verified["reward"] == 1.0
    assert verified["usage"]["frames_shown"] == 8 + 13
    assert client.post("/close_session", json={}).json() == {"closed": True}
    assert open_sessions(client) == 0


def test_closing_twice_is_fine(client: TestClient, row: dict[str, Any]) -> None:
    assert client.post("/close_session", json={}).json() == {"closed": False}
    client.post("/seed_session", json=row)
    assert client.post("/close_session").json() == {"closed": True}
    assert client.post("/close_session").json() == {"closed": False}
    assert step(client, ASK).status_code == 404


def test_a_step_without_a_session_is_refused(client: TestClient) -> None:
    answer = step(client, ASK)
    assert answer.status_code == 404
    assert answer.json()["detail"] == "no open session: it was closed, expired, or never seeded"


@pytest.mark.parametrize("body", [{}, {"output": "text"}, {"output": None}])
def test_a_step_without_output_is_refused(client: TestClient, row: dict[str, Any], body: Any) -> None:
    client.post("/seed_session", json=row)
    answer = client.post("/step", json=body)
    assert answer.status_code == 422
    assert step(client, ANSWER).json()["done"]


@pytest.mark.parametrize(
    "changes",
    [{"video": None}, {"video": "nowhere.mp4"}, {"video": "../../../README.md"}, {"video": "http://host/a.mp4"},
     {"explorer": []}, {"explorer": {"max_turn": 3}}, {"explorer": {"transport": "fax"}}],
)  # fmt: skip
def test_a_bad_row_gets_one_sentence(client: TestClient, row: dict[str, Any], changes: Any) -> None:
    answer = client.post("/seed_session", json={**row, **changes})
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert isinstance(detail, str)
    assert "\n" not in detail
    assert "Traceback" not in detail
    assert open_sessions(client) == 0


def test_a_bad_stream_row_gets_one_sentence() -> None:
    with TestClient(verifier("sav_stream").setup_webserver()) as client:
        for stream in (None, {"frames": [], "chunk": 1}, {"frames": ["a", "b"], "chunk": 0}):
            answer = client.post("/seed_session", json={**example_rows("sav_stream")[0], "stream": stream})
            assert answer.status_code == 422
            assert "stream" in answer.json()["detail"]


def test_a_full_store_says_so_and_has_room_again(tmp_path: Path, row: dict[str, Any]) -> None:
    app = explorer(tmp_path, max_sessions=1).setup_webserver()
    with TestClient(app) as first, TestClient(app) as second:
        assert first.post("/seed_session", json=row).status_code == 200
        refused = second.post("/seed_session", json=row)
        assert refused.status_code == 503
        assert "lower the concurrency" in refused.json()["detail"]
        assert first.post("/seed_session", json=row).status_code == 200  # its own again
        first.post("/close_session")
        assert second.post("/seed_session", json=row).status_code == 200


def test_idle_sessions_are_swept_without_any_request(tmp_path: Path, row: dict[str, Any]) -> None:
    server = explorer(tmp_path, session_idle_seconds=0.2)
    with TestClient(server.setup_webserver()) as client:
        client.post("/seed_session", json=row)
        deadline = time.monotonic() + 20
        while len(server._routes.sessions) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(server._routes.sessions) == 0
        assert step(client, ASK).status_code == 404


def test_a_server_that_stops_releases_its_sessions(tmp_path: Path, row: dict[str, Any]) -> None:
    server = explorer(tmp_path)
    with TestClient(server.setup_webserver()) as client:
        client.post("/seed_session", json=row)
    assert len(server._routes.sessions) == 0


def test_a_repeated_turn_is_answered_again_and_is_no_other_turn(client: TestClient, row: dict[str, Any]) -> None:
    client.post("/seed_session", json=row)
    first = step(client, ASK, turn=0).json()
    assert step(client, ASK, turn=0).json() == first
    assert step(client, ASK, turn=1).json()["info"]["turns"] == 2
    # Without numbers every request is a turn.
    assert step(client, ASK).json()["info"]["turns"] == 3
    assert step(client, ASK).json()["info"]["turns"] == 4


async def wander(http: httpx.AsyncClient, row: dict[str, Any], rng: random.Random) -> None:
    """A session that is closed, left alone, or cut off in the middle of a request."""
    await http.post("/seed_session", json=row)
    for _ in range(rng.randrange(3)):
        says = message(rng.choice([ASK, CROP, "hm", ANSWER]))
        request = asyncio.create_task(http.post("/step", json={"output": [says]}))
        if rng.random() < 0.3:
            await asyncio.sleep(rng.random() * 0.01)
            request.cancel()
            return
        await request
    if rng.random() < 0.6:
        await http.post("/close_session")


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_sessions_with_random_aborts_leave_nothing(
    tmp_path: Path, row: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    server = explorer(tmp_path / "store", session_idle_seconds=3600)
    app = server.setup_webserver()
    transport = httpx.ASGITransport(app)
    fuller = {**row, "video": str(search_root() / "environments/clip_explorer/data" / row["video"])}

    async def crowd(number: int) -> None:
        rng = random.Random(number)

        async def one() -> None:
            async with httpx.AsyncClient(transport=transport, base_url="http://verifier") as http:
                await wander(http, rng.choice([row, fuller]), rng)

        await asyncio.gather(*(one() for _ in range(number)))

    asyncio.run(crowd(5))  # what is opened once and kept (threads, imports) is opened now
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    asyncio.run(crowd(count))
    server._routes.sessions._idle = -1.0  # all of them are idle now
    left_alone = server._routes.sessions.expire()
    assert 0 < left_alone < count
    assert len(server._routes.sessions) == 0
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert threading.active_count() <= threads
    assert list(temporary.rglob("*")) == []
    # The store holds what was shown, once each by its content, and nothing half written.
    stored = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert {path.suffix for path in stored} == {".png"}
    assert len(stored) <= 8 + 13 + 1


def test_an_image_part_needs_no_detail() -> None:
    response = {
        "id": "r", "created_at": 0, "model": "m", "object": "response", "output": [], "parallel_tool_calls": False,
        "tool_choice": "none", "tools": [],
    }  # fmt: skip
    image = {"type": "input_image", "image_url": "a.png"}
    body = {"responses_create_params": {"input": [{"role": "user", "content": [image]}]}, "response": response}
    assert ScoringRequest.model_validate(body).row()["responses_create_params"]["input"]
    assert image == {"type": "input_image", "image_url": "a.png"}
