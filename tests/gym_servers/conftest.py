# SPDX-License-Identifier: Apache-2.0
"""Real Gym servers for tests: one start for many of them, and the command as a person runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.launch.catalogue import load_environment
from nemo_gym_video.launch.collection import RunPlan, collect, running
from nemo_gym_video.launch.inputs import read_inputs

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-c", "from nemo_gym_video.cli import main; main()"]
MIXED = "video_grpo"
MULTI_TURN = ("clip_explorer", "sav_stream")


class FakeVllm:
    """The stand-in engine as a process; ``requests`` are the chat bodies it was sent."""

    def __init__(self, log: Path, *options: str) -> None:
        self.log = log
        command = [sys.executable, str(HERE / "fake_vllm.py"), "--log", str(log), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}/v1"

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Iterator[Callable[..., FakeVllm]]:
    """Starts stand-in engines that end with the test."""
    started: list[FakeVllm] = []

    def start(*options: str) -> FakeVllm:
        started.append(FakeVllm(tmp_path / f"requests{len(started)}.jsonl", *options))
        return started[-1]

    yield start
    for engine in started:
        engine.kill()


@pytest.fixture
def rows_file(tmp_path: Path) -> Callable[[Sequence[Any]], Path]:
    """Writes rows (objects, or raw lines) beside 64 small frames and returns the file."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for index in range(64):
        Image.new("RGB", (64, 48), (index * 3, 90, 20)).save(folder / f"{index}.png")

    def write(rows: Sequence[Any]) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path = folder / "rows.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``gym-video`` to its end; no process may be left that names ``output``."""

    def run(*arguments: str | Path, output: Path) -> subprocess.CompletedProcess[str]:
        words = [*COMMAND, *map(str, arguments), "--output", str(output)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
        assert processes_naming(output) == []
        return done

    return run


@contextmanager
def started_command(*arguments: str | Path, output: Path) -> Iterator[subprocess.Popen[str]]:
    """``gym-video`` in the background; killed with its group at the end of the block."""
    words = [*COMMAND, *map(str, arguments), "--output", str(output)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def background() -> Any:
    """``started_command``, for tests that look in while it runs."""
    return started_command


def processes_naming(path: Path) -> list[str]:
    """Command lines of running processes (servers that were forked included) that name ``path``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(path) in words and str(os.getpid()) != folder.name:
            found.append(words)
    return found


@pytest.fixture
def leftovers() -> Callable[[Path], list[str]]:
    """``processes_naming``, as a fixture."""
    return processes_naming


class Session:
    """Running servers of the mixed environment with the embedded baseline."""

    def __init__(self, plan: RunPlan, servers: Any) -> None:
        self.plan = plan
        self.servers = servers

    def rollouts(self, output: Path, **changes: Any) -> list[dict[str, Any]]:
        """Collect the example rows of all four environments once more and return Gym's rollout lines."""
        output.mkdir()
        plan = replace(self.plan, output=output, **changes)
        results = collect(plan, self.servers, lambda results: None)
        assert not results.problems
        return [json.loads(line) for line in plan.rollouts_file.read_text().splitlines()]


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One start for all tests that need only running servers."""
    names = ("caprl_mcqa", "sav_pt_tracks", "sav_box_tracks", "sav_ref_tracks")
    environment = load_environment(MIXED)
    examples = [example for name in names for example in load_environment(name).examples]
    inputs = read_inputs(examples, {agent.name for agent in environment.agents})
    started = (environment, *(load_environment(name) for name in MULTI_TURN))
    plan = RunPlan(environments=started, inputs=inputs, output=tmp_path_factory.mktemp("mixed"))
    with running(plan, lambda text: None) as servers:
        yield Session(plan, servers)
