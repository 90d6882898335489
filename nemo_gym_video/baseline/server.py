# SPDX-License-Identifier: Apache-2.0
"""vLLM's HTTP surface over an ``Engine``: models, chat completions, tokenize, health."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from nemo_gym_video.baseline.chat import RequestError
from nemo_gym_video.baseline.engine import Engine
from nemo_gym_video.errors import NemoGymVideoError

_MAX_BODY_BYTES = 512 << 20
_PARENT_POLL_S = 0.5
_ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 413: "BadRequestError"}

Handler = Callable[[web.Request], Awaitable[web.Response]]


def build_app(engine: Engine, *, workers: int = 2) -> web.Application:
    """The application. Every request's work runs on one of ``workers`` threads, never on the event loop."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="baseline")

    def post(answer: Callable[[bytes], dict[str, Any]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            raw = await request.read()
            status, body = await asyncio.get_running_loop().run_in_executor(pool, _answer, answer, raw)
            return web.Response(body=body, status=status, content_type="application/json")

        return handle

    async def models(_: web.Request) -> web.Response:
        return web.json_response(engine.models())

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def close(_: web.Application) -> None:
        pool.shutdown(wait=False, cancel_futures=True)

    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_http_errors])
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", post(engine.chat))
    app.router.add_post("/tokenize", post(engine.tokenize))
    app.on_cleanup.append(close)
    return app


def serve(engine: Engine, *, host: str, port: int, parent: int) -> None:
    """Serve until SIGTERM or SIGINT, or until ``parent``, the process that started this one, is gone.

    Prints ``{"port": N}`` as one line when requests are answered; ``port`` 0 takes a free one.
    """
    asyncio.run(_serve(build_app(engine), host, port, parent))
    # Worker threads may still be decoding; nobody waits for their answers any more.
    os._exit(0)


async def _serve(app: web.Application, host: str, port: int, parent: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    server = site._server
    assert isinstance(server, asyncio.Server)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    while not stop.is_set() and os.getppid() == parent:
        try:
            await asyncio.wait_for(stop.wait(), _PARENT_POLL_S)
        except TimeoutError:
            continue
    await runner.cleanup()


def _answer(answer: Callable[[bytes], dict[str, Any]], raw: bytes) -> tuple[int, bytes]:
    """Status and JSON body; every error of ours becomes an OpenAI-shaped one."""
    try:
        return 200, json.dumps(answer(raw), separators=(",", ":")).encode()
    except RequestError as error:
        return error.status, _error_body(str(error), error.status)
    except NemoGymVideoError as error:
        return 400, _error_body(str(error), 400)


def _error_body(message: str, status: int) -> bytes:
    kind = _ERROR_TYPES.get(status, "InternalServerError")
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


@web.middleware
async def _http_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Give aiohttp's own refusals (no such path, body too large) the same body as ours."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(
            body=_error_body(error.reason, error.status), status=error.status, content_type="application/json"
        )
