# SPDX-License-Identifier: Apache-2.0
"""Works through planned chunks on processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.chunks import ChunkResult, ChunkTask, prepare_chunk

ONE_CORE = {"PYTHON_CPU_COUNT": "1"}
"""Set for every worker: workers are what runs in parallel, so decoders inside them start no threads."""

_QUEUED = 2
"""Chunks that wait at each worker; bounds what is in flight."""


def on_processes(task: ChunkTask, chunks: Sequence[int], *, workers: int) -> Generator[ChunkResult]:
    """Yield results as ``workers`` processes end chunks.

    Raises:
        PreparationError: a worker died.
    """
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
