# SPDX-License-Identifier: Apache-2.0
"""Where chunks are worked on: in this process, on worker processes, or on Ray Data. All yield as chunks end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from nemo_gym_video.prepare import chunks as planned
from nemo_gym_video.prepare.chunks import ChunkResult, ChunkTask
from nemo_gym_video.prepare.process_pool import on_processes
from nemo_gym_video.prepare.ray_data import on_ray_data

Results = Generator[ChunkResult]
Runner = Callable[[Sequence[int]], Results]


def start(task: ChunkTask, *, workers: int, ray: str | None) -> Runner:
    """A function from chunk numbers to results in the order in which they end; 0 workers is this process."""

    def alone(chunks: Sequence[int]) -> Results:
        return (planned.prepare_chunk(task, chunk) for chunk in chunks)

    def on_ray(chunks: Sequence[int]) -> Results:
        return on_ray_data(task, chunks, workers=max(workers, 1), address=ray or "local")

    def pooled(chunks: Sequence[int]) -> Results:
        # One chunk has nothing to run beside it, so it is not worth a process.
        return on_processes(task, chunks, workers=workers) if len(chunks) > 1 else alone(chunks)

    if ray is not None:
        return on_ray
    return pooled if workers else alone
