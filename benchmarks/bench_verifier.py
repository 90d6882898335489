# SPDX-License-Identifier: Apache-2.0
"""The tracks server under 256 verifications at once: how long its event loop stands still, against 50 ms.

The loop's own pulse is measured inside the server while another process sends every request at the same time.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
import time
from typing import Any

import uvicorn

from benchmarks.bench_scoring import tracks_row
from benchmarks.common import Comparison

CONCURRENT = 256
LIMIT_S = 0.05
PULSE_S = 0.002
WARM_S = 3.0  # its workers have been imported by the time that rollouts end
PROMPT_TOKENS = 8192

CLIENT = """
import asyncio, sys
import aiohttp
async def main():
    url, count, body = sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read()
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        async def verify():
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                return (await answer.json())["reward"]
        rewards = await asyncio.gather(*(verify() for _ in range(count)))
    assert set(rewards) == {1.0}, set(rewards)
asyncio.run(main())
"""


def verify_request() -> bytes:
    """A rollout with a long prompt's token ids, 3 objects on 64 frames of 1080p masks, and the right answer."""
    row, text = tracks_row()
    message = {
        "id": "msg", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        "prompt_token_ids": [18] * PROMPT_TOKENS, "generation_token_ids": [5] * 2000,
        "generation_log_probs": [-0.1] * 2000,
    }  # fmt: skip
    response = {
        "id": "resp", "created_at": 1, "model": "m", "object": "response", "output": [message],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    request = {**row, "responses_create_params": {"input": "Follow the points."}, "response": response}
    return json.dumps(request).encode()


async def longest_stall(app: Any, body: bytes) -> tuple[float, float]:
    """(longest gap beyond the pulse, seconds for all requests) while they are verified."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", http="httptools"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    await asyncio.sleep(WARM_S)
    port = server.servers[0].sockets[0].getsockname()[1]
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, f"http://127.0.0.1:{port}/verify", str(CONCURRENT),
        stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    sending = asyncio.create_task(client.communicate(body))
    started = last = time.perf_counter()
    longest = 0.0
    while not sending.done():
        await asyncio.sleep(PULSE_S)
        now = time.perf_counter()
        longest = max(longest, now - last - PULSE_S)
        last = now
    elapsed = time.perf_counter() - started
    server.should_exit = True
    await serving
    if client.returncode:
        raise RuntimeError("a verification failed")
    return longest, elapsed


def _measured(app: Any, body: bytes) -> float:
    import uvloop  # extra: what uvicorn runs Gym's servers on where it is installed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(longest_stall(app, body))[0]


def run() -> list[Comparison]:
    """One comparison: the longest stall of three runs' median against the limit."""
    fixture = runpy.run_path("verifiers/video_verifier/app.py")["VERIFIER_FIXTURE"]
    body = verify_request()
    # A server belongs to one event loop, so each run has its own.
    stalls = sorted(
        _measured(fixture.server_factory()(task="sav_tracks").setup_webserver(), body) for _ in range(3)
    )
    return [
        Comparison(
            name=f"longest event-loop stall, {CONCURRENT} verifications at once ({len(body) >> 10} KiB each)",
            ours="video_verifier server, task sav_tracks",
            reference="50 ms",
            ours_seconds=stalls[1],
            reference_seconds=LIMIT_S,
            claim=1,
        )
    ]
