# SPDX-License-Identifier: Apache-2.0
"""Starts the baseline as a child process and stops it again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.processes import ProcessGroup, last_lines


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
    with tempfile.TemporaryDirectory(prefix="baseline") as folder:
        group = ProcessGroup(command, log=Path(folder) / "baseline.log", ends_with_input=False)
        try:
            yield Baseline(model, _read_port(group, timeout_s), group.process.pid)
        finally:
            group.stop()


def _read_port(group: ProcessGroup, timeout_s: float) -> int:
    try:
        event = group.next_line(timeout_s)
    except ServerStartError as error:
        last = " | ".join(last_lines(group.log, 5))
        raise ServerStartError(f"the baseline did not start: {last or 'no output'}") from error
    if event is None:
        raise ServerStartError(f"the baseline did not start in {timeout_s:g} s")
    return int(event["port"])
