# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from nemo_gym_video.baseline.engine import Engine
from nemo_gym_video.baseline.server import build_app

Steps = Callable[[TestClient[Any, Any]], Awaitable[None]]
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LONG = {"messages": [{"role": "user", "content": "x" * 5000}]}


@pytest.fixture
def drive(make_engine: Callable[..., Engine]) -> Callable[[Steps], None]:
    def run(steps: Steps) -> None:
        async def inner() -> None:
            async with TestClient(TestServer(build_app(make_engine(max_model_len=4096)))) as client:
                await steps(client)

        asyncio.run(inner())

    return run


def test_the_surface(drive: Callable[[Steps], None]) -> None:
    async def steps(client: TestClient[Any, Any]) -> None:
        assert (await client.get("/health")).status == 200
        models = await (await client.get("/v1/models")).json()
        assert models["data"][0]["id"] == "baseline"
        tokens = await (await client.post("/tokenize", json=HELLO)).json()
        chat = await client.post("/v1/chat/completions", json={**HELLO, "return_token_ids": True})
        assert chat.status == 200
        assert (await chat.json())["prompt_token_ids"] == tokens["tokens"]

    drive(steps)


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", "{", 400, "BadRequestError"),
        ("/v1/chat/completions", json.dumps({**HELLO, "model": "x"}), 404, "NotFoundError"),
        ("/v1/chat/completions", json.dumps(LONG), 400, "BadRequestError"),
        ("/v1/completions", "{}", 404, "NotFoundError"),
        ("/tokenize", "{}", 400, "BadRequestError"),
    ],
)  # fmt: skip
def test_errors_have_openai_bodies(
    drive: Callable[[Steps], None], path: str, body: str, status: int, kind: str
) -> None:
    async def steps(client: TestClient[Any, Any]) -> None:
        answer = await client.post(path, data=body)
        error = (await answer.json())["error"]
        assert (answer.status, error["code"], error["type"]) == (status, status, kind)
        assert error["message"]

    drive(steps)


def test_media_that_is_refused_is_a_bad_request(drive: Callable[[Steps], None], tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    urls = ["/etc/passwd", "https://example.org/a.png", str(broken), str(tmp_path)]

    async def steps(client: TestClient[Any, Any]) -> None:
        for url in urls:
            content = [{"type": "image_url", "image_url": {"url": url}}]
            answer = await client.post(
                "/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]}
            )
            assert answer.status == 400, url
            assert "message 0, part 0" in (await answer.json())["error"]["message"]

    drive(steps)


def test_the_loop_answers_while_the_workers_are_busy(
    drive: Callable[[Steps], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    release = threading.Event()

    def slow(*_: Any, **__: Any) -> str:
        release.wait(20)
        return "done"

    monkeypatch.setattr("nemo_gym_video.baseline.engine.respond", slow)

    async def steps(client: TestClient[Any, Any]) -> None:
        busy = [asyncio.create_task(client.post("/v1/chat/completions", json=HELLO)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert (await asyncio.wait_for(client.get("/health"), 5)).status == 200
        release.set()
        assert [(await task).status for task in busy] == [200] * 5

    drive(steps)
