# SPDX-License-Identifier: Apache-2.0
"""Starts the baseline as a child process and stops it again."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nemo_gym_video.errors import ServerStartError

_STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """A running baseline: the model name it serves, its port and its process id."""

    model: str
    port: int
    pid: int

    @property
    def base_url(self) -> str:
        """What to configure as ``base_url`` of Gym's ``vllm_model``."""
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def start_baseline(
    media_roots: Sequence[Path],
    *,
    model: str = "baseline",
    num_frames: int = 32,
    max_model_len: int = 131072,
    options: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Iterator[Baseline]:
    """Run ``python -m nemo_gym_video.baseline`` on a free port for the length of the block.

    ``options`` are further command-line options. A ``ServerStartError`` carries the child's last lines when it
    does not answer within ``timeout_s`` seconds.
    """
    command = [sys.executable, "-m", "nemo_gym_video.baseline", "--port", "0", "--model", model]
    command += ["--num-frames", str(num_frames), "--max-model-len", str(max_model_len), *options]
    for root in media_roots:
        command += ["--media-root", str(root)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield Baseline(model, _read_port(process, log, timeout_s), process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _read_port(process: subprocess.Popen[str], log: IO[str], timeout_s: float) -> int:
    assert process.stdout is not None
    too_late = threading.Timer(timeout_s, process.kill)
    too_late.start()
    try:
        line = process.stdout.readline()
    finally:
        too_late.cancel()
    try:
        return int(json.loads(line)["port"])
    except (ValueError, KeyError, TypeError) as error:
        process.kill()
        process.wait()
        log.seek(0)
        last = " | ".join(log.read().splitlines()[-5:])
        raise ServerStartError(f"the baseline did not start: {last or 'no output'}", got=line) from error
