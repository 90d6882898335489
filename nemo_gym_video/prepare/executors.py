# SPDX-License-Identifier: Apache-2.0
"""Ways to work through chunks: in this process, on worker processes, or on Ray Data. All yield as chunks end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nemo_gym_video.errors import PreparationError

if TYPE_CHECKING:
    from nemo_gym_video.prepare.job import ChunkResult, ChunkTask

Results = Generator["ChunkResult"]
Runner = Callable[[Sequence[int]], Results]

ONE_CORE = {"PYTHON_CPU_COUNT": "1"}
"""Set for every worker: workers are what runs in parallel, so decoders inside them start no threads."""

_QUEUED = 2
"""Chunks that wait at each worker; bounds what is in flight."""


def start(task: ChunkTask, *, workers: int, ray: str | None) -> Runner:
    """A function from chunk numbers to results in the order in which they end; 0 workers is this process."""

    def alone(chunks: Sequence[int]) -> Results:
        from nemo_gym_video.prepare import job

        return (job.prepare_chunk(task, chunk) for chunk in chunks)

    def on_ray(chunks: Sequence[int]) -> Results:
        from nemo_gym_video.prepare.ray_data import on_ray_data

        return on_ray_data(task, chunks, workers=max(workers, 1), address=ray or "local")

    if ray is not None:
        return on_ray

    def pooled(chunks: Sequence[int]) -> Results:
        # One chunk has nothing to run beside it, so it is not worth a process.
        return _pooled(task, chunks, workers) if len(chunks) > 1 else alone(chunks)

    return pooled if workers else alone


def _pooled(task: ChunkTask, chunks: Sequence[int], workers: int) -> Results:
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    from nemo_gym_video.prepare.job import prepare_chunk

    waiting = iter(chunks)
    running: set[Future[ChunkResult]] = set()
    with environment(ONE_CORE):
        pool = ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=_end_with_parent, initargs=(os.getpid(),)
        )
        try:
            while True:
                while len(running) < workers * _QUEUED and (chunk := next(waiting, None)) is not None:
                    running.add(pool.submit(prepare_chunk, task, chunk))
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
        except BrokenProcessPool as error:
            raise PreparationError(
                "a worker process died, out of memory or in a decoder", allowed="--resume with fewer --workers"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that processes started in the block inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever; this ends it within half a second."""

    # Ctrl-C reaches the whole group; the parent decides what becomes of the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def require_ray() -> Any:
    """The ``ray`` module with Ray Data, or a ``PreparationError`` that says how to install it."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise PreparationError(
            "Ray Data is not installed",
            code="prepare.extra",
            got=str(error),
            allowed="pip install 'nemo-gym-video[ray]'",
            where="--ray",
        ) from error
    return ray
