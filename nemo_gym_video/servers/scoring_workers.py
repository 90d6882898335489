# SPDX-License-Identifier: Apache-2.0
"""Worker processes for scoring, so that an event loop does nothing but move bytes.

Threads would not do: they take the interpreter's lock from the loop again and again, for whole seconds together
when hundreds of verifications arrive at once. A worker is this module run as ``python -m … SCORER CONFIG``:
it reads requests from standard input and answers on standard output, each as an 8-byte length and the bytes, an
answer with a status byte before them; it ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from collections.abc import Mapping
from typing import IO, Any

from nemo_gym_video.errors import NemoGymVideoError

_LENGTH = struct.Struct("!Q")
_OK, _REFUSED = b"\x00", b"\x01"


class WorkerFailed(NemoGymVideoError):
    """A scoring worker ended in the middle of a request."""

    code = "scoring.worker"


class RequestRefused(NemoGymVideoError):
    """The request is none that can be scored."""

    code = "scoring.refused"


class ScoringWorkers:
    """Up to ``limit`` worker processes, started when they are needed. Belongs to one event loop."""

    def __init__(self, scorer: str, settings: Mapping[str, Any], *, limit: int) -> None:
        """``scorer`` is a name in ``gym.scorers``; ``settings`` must be JSON."""
        self._command = [
            sys.executable,
            "-m",
            "nemo_gym_video.servers.scoring_workers",
            scorer,
            json.dumps(dict(settings)),
        ]
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._idle: list[asyncio.subprocess.Process] = []

    async def score(self, body: bytes) -> bytes:
        """The answer to one ``/verify`` body.

        Raises:
            RequestRefused: the body is no rollout to score.
            WorkerFailed: the worker was killed or crashed; the next request gets a new one.
        """
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                status, answer = await _ask(worker, body)
            except (OSError, asyncio.IncompleteReadError) as error:
                _kill(worker)
                raise WorkerFailed(f"a scoring worker ended with code {await worker.wait()}") from error
            except BaseException:
                _kill(worker)  # cancelled in between: its answer would be taken for the next request's
                raise
            self._idle.append(worker)
        if status != _OK:
            raise RequestRefused(answer.decode())
        return answer

    async def warm_up(self) -> None:
        """Start every worker now: making a process stops the loop for longer than moving a request does."""
        missing = self._limit - len(self._idle)
        self._idle += await asyncio.gather(*(self._start() for _ in range(missing)))

    async def close(self) -> None:
        """End the idle workers."""
        for worker in self._idle:
            _kill(worker)
            await worker.wait()
        self._idle.clear()

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20
        )


async def _ask(worker: asyncio.subprocess.Process, body: bytes) -> tuple[bytes, bytes]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(_LENGTH.pack(len(body)))
    worker.stdin.write(body)
    await worker.stdin.drain()
    status = await worker.stdout.readexactly(1)
    (length,) = _LENGTH.unpack(await worker.stdout.readexactly(_LENGTH.size))
    return status, await worker.stdout.readexactly(length)


def _kill(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.kill()


def serve(requests: IO[bytes], answers: IO[bytes], scorer: str, settings: Mapping[str, Any]) -> None:
    """Answer requests until there are no more."""
    from nemo_gym_video.servers.scorers import score_body

    while len(head := requests.read(_LENGTH.size)) == _LENGTH.size:
        body = requests.read(*_LENGTH.unpack(head))
        try:
            status, answer = _OK, score_body(body, scorer, settings)
        except NemoGymVideoError as error:
            status, answer = _REFUSED, str(error).encode()
        answers.write(status + _LENGTH.pack(len(answer)))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    # When cores are scarce the event loop that feeds the workers goes first: a late score holds up one rollout, a
    # late loop all of them.
    os.nice(10)
    serve(sys.stdin.buffer, sys.stdout.buffer, sys.argv[1], json.loads(sys.argv[2]))
