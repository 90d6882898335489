# SPDX-License-Identifier: Apache-2.0
"""Worker processes for scoring, so that an event loop does nothing but move bytes.

Threads would not do: they take the interpreter's lock from the loop again and again, for whole seconds together
when hundreds of verifications arrive at once. A worker is this module run as ``python -m … TASK SETTINGS PATH``.
It says first whether it could load its task. Then it reads requests from standard input, each a body and what was
kept of the episode (JSON, ``null`` for nothing), and answers on standard output: everything as an 8-byte length
and the bytes, an answer with a status byte before them. It ends with its input.
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
from nemo_gym_video.servers.scorers import score_body
from nemo_gym_video.tasks.registry import TaskError, load_task

_LENGTH = struct.Struct("!Q")
_OK, _REFUSED = b"\x00", b"\x01"


class WorkerFailed(NemoGymVideoError):
    """A scoring worker ended in the middle of a request."""

    code = "scoring.worker"


class RequestRefused(NemoGymVideoError):
    """The request cannot be scored."""

    code = "scoring.refused"


class ScoringWorkers:
    """Up to ``limit`` worker processes, started when they are needed. Belongs to one event loop."""

    def __init__(self, task: str, settings: Mapping[str, Any], *, limit: int) -> None:
        """``task`` is a reference as ``load_task`` reads it; ``settings`` must be JSON."""
        module = "nemo_gym_video.servers.scoring_workers"
        self._command = [sys.executable, "-m", module, task, json.dumps(dict(settings)), json.dumps(sys.path)]
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._idle: list[asyncio.subprocess.Process] = []

    async def score(self, body: bytes, episode: Mapping[str, Any] | None = None) -> bytes:
        """The answer to one ``/verify`` body; ``episode`` is what the server kept of the rollout.

        Raises:
            RequestRefused: the body is no rollout to score.
            WorkerFailed: the worker was killed or crashed; the next request gets a new one.
            TaskError: a new worker cannot load the task.
        """
        async with self._free:
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                status, answer = await _ask(worker, body, episode)
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
        worker = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20
        )
        try:
            status, problem = await _read(worker)
        except (OSError, asyncio.IncompleteReadError) as error:
            _kill(worker)
            raise WorkerFailed(f"a scoring worker did not start: code {await worker.wait()}") from error
        except BaseException:
            _kill(worker)
            raise
        if status != _OK:
            _kill(worker)
            await worker.wait()
            raise TaskError(problem.decode())
        return worker


async def _ask(
    worker: asyncio.subprocess.Process, body: bytes, episode: Mapping[str, Any] | None
) -> tuple[bytes, bytes]:
    assert worker.stdin is not None
    for piece in (body, json.dumps(episode).encode()):
        worker.stdin.write(_LENGTH.pack(len(piece)))
        worker.stdin.write(piece)
    await worker.stdin.drain()
    return await _read(worker)


async def _read(worker: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert worker.stdout is not None
    status = await worker.stdout.readexactly(1)
    (length,) = _LENGTH.unpack(await worker.stdout.readexactly(_LENGTH.size))
    return status, await worker.stdout.readexactly(length)


def _kill(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.kill()


def serve(requests: IO[bytes], answers: IO[bytes], task: str, settings: Mapping[str, Any]) -> None:
    """Load the task, then answer requests until there are no more."""

    def answer(status: bytes, said: bytes) -> None:
        answers.write(status + _LENGTH.pack(len(said)))
        answers.write(said)
        answers.flush()

    try:
        loaded = load_task(task, settings)
    except NemoGymVideoError as error:
        return answer(_REFUSED, str(error).encode())
    answer(_OK, b"")
    while (body := _piece(requests)) is not None:
        episode = json.loads(_piece(requests) or b"null")
        try:
            answer(_OK, score_body(body, loaded, episode))
        except NemoGymVideoError as error:
            answer(_REFUSED, str(error).encode())


def _piece(requests: IO[bytes]) -> bytes | None:
    """The next length and its bytes; None where the input ends."""
    head = requests.read(_LENGTH.size)
    return requests.read(*_LENGTH.unpack(head)) if len(head) == _LENGTH.size else None


if __name__ == "__main__":
    # When cores are scarce the event loop that feeds the workers goes first: a late score holds up one rollout, a
    # late loop all of them.
    os.nice(10)
    # Gym's search folders, which the server has on its path and a new process has not.
    sys.path += [folder for folder in json.loads(sys.argv[3]) if folder not in sys.path]
    # Answers have standard output to themselves: a task that prints must not get in between.
    to_server = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, to_server, sys.argv[1], json.loads(sys.argv[2]))
