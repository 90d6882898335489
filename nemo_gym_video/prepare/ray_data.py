# SPDX-License-Identifier: Apache-2.0
"""Works through planned chunks on Ray Data: streaming, with its backpressure, on one machine or a cluster."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.chunks import ChunkResult, ChunkTask, prepare_chunk
from nemo_gym_video.prepare.process_pool import ONE_CORE, environment


class RayChunks:
    """What Ray calls with batches of chunk numbers."""

    def __init__(self, task: ChunkTask) -> None:
        """``task`` names the job's folder, which must be the same path on every node."""
        self._task = task

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Work on the chunks of a batch; the answer holds what the driver needs, never a row."""
        results = [prepare_chunk(self._task, int(chunk)) for chunk in batch["chunk"]]
        return {
            "chunk": np.array([result.chunk for result in results]),
            "inputs": np.array([result.inputs for result in results]),
            "first_error": np.array([result.first_error or "" for result in results], dtype=object),
        }


def on_ray_data(task: ChunkTask, chunks: Sequence[int], *, workers: int, address: str) -> Generator[ChunkResult]:
    """Yield results as Ray ends chunks. ``address`` is ``local`` or that of a cluster; ``workers`` bounds actors.

    A cluster that this call starts ends with it.
    """
    if not chunks:
        return
    ray = require_ray()
    started = not ray.is_initialized()
    if started:
        _start(ray, address, workers)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        dataset = ray.data.from_items([{"chunk": chunk} for chunk in chunks], override_num_blocks=len(chunks))
        done = dataset.map_batches(
            RayChunks,
            fn_constructor_args=(task,),
            batch_size=1,
            concurrency=workers,
            num_cpus=1,
        )
        for row in done.iter_rows():
            yield ChunkResult(int(row["chunk"]), int(row["inputs"]), str(row["first_error"]) or None)
    finally:
        if started:
            ray.shutdown()


def _start(ray: Any, address: str, workers: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address != "local":
        attempts, options = 1, {"address": address, "runtime_env": {"env_vars": dict(ONE_CORE)}, **quiet}
    else:
        # One CPU more than workers: Ray Data keeps a slot for reading its input. Ray gives its own processes half
        # a minute to start, which a busy machine can miss.
        attempts, options = 3, {"num_cpus": workers + 1, "include_dashboard": False, **quiet}
    for attempt in range(1, attempts + 1):
        try:
            # Processes of a local cluster inherit the environment; those of a running one are told.
            with environment({**ONE_CORE, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}):
                ray.init(**options)
            return
        except Exception as error:
            ray.shutdown()
            if attempt == attempts:
                raise PreparationError(f"Ray did not start ({error})"[:300], got=address, where="--ray") from error


def require_ray() -> Any:
    """The ``ray`` module with Ray Data, or a ``PreparationError`` that says how to install it."""
    try:
        import ray  # extra: ray
        import ray.data  # extra: ray
    except ImportError as error:
        raise PreparationError(
            "Ray Data is not installed",
            code="prepare.extra",
            got=str(error),
            allowed="pip install 'nemo-gym-video[ray]'",
            where="--ray",
        ) from error
    return ray
