# SPDX-License-Identifier: Apache-2.0
"""Gym's own commands start and collect from the same environments, with the same rewards; and score again."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.launch.embedded_policy import start_baseline
from nemo_gym_video.launch.processes import ProcessGroup
from nemo_gym_video.launch.scaffold import scaffold_environment
from nemo_gym_video.servers.gym_root import search_root

pytestmark = [pytest.mark.servers, pytest.mark.slow]

PREFIX = Path(sys.prefix)
VERIFIERS = ("video_verifier/boxed_mcqa", "video_verifier/sav_tracks")
GYM = [str(PREFIX / "bin" / "gym")]
SERVERS = (
    ("responses_api_agents", "video_agent"),
    ("resources_servers", "video_verifier"),
    ("environment_servers", "legacy_agent"),
    ("responses_api_models", "vllm_model"),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def venvs(tmp_path: Path) -> Path:
    """Prepared environments for Gym: every server's is the one that runs these tests."""
    if not (PREFIX / "bin" / "activate").exists():
        pytest.skip("these tests do not run in a virtual environment that Gym can use")
    for group, name in SERVERS:
        folder = tmp_path / "venvs" / group / name
        folder.mkdir(parents=True)
        (folder / ".venv").symlink_to(PREFIX)
    return tmp_path / "venvs"


@contextmanager
def gym_servers(words: list[str], port: int, log: Path) -> Iterator[None]:
    """``gym env start`` until it says it is ready; ends with the block. Ray's sockets need a short path."""
    ray = Path(tempfile.mkdtemp(prefix="ray"))
    path = os.pathsep.join([str(PREFIX / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "RAY_TMPDIR": str(ray), "PATH": path}
    group = ProcessGroup([*GYM, "env", "start", *words], log=log, environment=environment)
    try:
        deadline = time.monotonic() + 300
        while not ready(port):
            assert group.process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, "Gym did not start"
            time.sleep(1)
        yield
    finally:
        group.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            group.process.wait(60)
        group.stop()
        shutil.rmtree(ray, ignore_errors=True)


def ready(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/readyz"
    with suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def gym(*words: str, cwd: Path) -> None:
    """One command to its end. Its output goes to a file: what Ray leaves running for a while would hold a pipe."""
    log = cwd / "command.log"
    with log.open("w") as out:
        done = subprocess.run([*GYM, *words], stdout=out, stderr=out, timeout=300, check=False, cwd=cwd)
    assert done.returncode == 0, log.read_text()[-3000:]


def rewards(path: Path) -> dict[tuple[int, int], float]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["_ng_task_index"], line["_ng_rollout_index"]): line["reward"] for line in lines}


def test_same_rewards_and_the_same_again(command: Any, venvs: Path, tmp_path: Path) -> None:
    root = search_root()
    theirs_of = {}
    names = ("caprl_mcqa", "sav_box_tracks")
    agents = ("mcqa_simple_agent", "sav_box_tracks_agent")
    files = [root / "environments" / name / "data" / "example.jsonl" for name in names]
    port = free_port()
    head = f"++head_server.port={port}"
    search = ["--search-dir", str(root)]
    with start_baseline([file.parent for file in files]) as baseline:
        ours = tmp_path / "ours"
        chosen = [word for name in names for word in ("--environment", name)]
        done = command("rollout", *chosen, "--model-url", baseline.base_url, output=ours)
        assert done.returncode == 0, done.stderr
        words = [*search, *chosen, "--model-type", "vllm_model", "--model", baseline.model]
        words += ["--model-url", baseline.base_url, "--model-api-key", "none", head]
        words += ["+skip_venv_if_present=true", f"+uv_venv_dir={venvs}"]
        with gym_servers(words, port, tmp_path / "gym.log"):
            theirs = {}
            for number, (agent, file) in enumerate(zip(agents, files, strict=True)):
                out = tmp_path / f"theirs{number}.jsonl"
                rows = ["--agent", agent, "--input", str(file), "--output", str(out)]
                gym("eval", "run", "--no-serve", *search, *rows, head, cwd=tmp_path)
                theirs_of[VERIFIERS[number]] = out
                theirs.update({(task + 5 * number, repeat): reward
                               for (task, repeat), reward in rewards(out).items()})  # fmt: skip
    _score_again(theirs_of, [*search, "+skip_venv_if_present=true", f"+uv_venv_dir={venvs}"], tmp_path)
    assert rewards(ours / "rollouts.jsonl") == theirs
    assert len(theirs) == 10


def _score_again(stored: dict[str, Path], options: list[str], folder: Path) -> None:
    """``gym eval reverify`` with nothing but the verifier gives every reward once more."""
    for verifier, rollouts in stored.items():
        again = folder / f"again_{verifier.replace('/', '_')}.jsonl"
        inputs = rollouts.with_name(f"{rollouts.stem}_materialized_inputs.jsonl")
        files = ["--inputs", str(inputs), "--rollouts", str(rollouts), "--output", str(again)]
        head = f"++head_server.port={free_port()}"
        gym("eval", "reverify", "--resources-server", verifier, *files, *options, head, cwd=folder)
        assert rewards(again) == rewards(rollouts)


def test_an_environment_elsewhere_starts(venvs: Path, tmp_path: Path) -> None:
    """Its servers find its folder, its task and its media, though Gym starts them in directories of their own."""
    folder = scaffold_environment("mine", tmp_path / "elsewhere", multi_turn=True)
    port = free_port()
    head = f"++head_server.port={port}"
    # A relative one means nothing any more in the directory that Gym starts a server in.
    search = ["--search-dir", os.path.relpath(tmp_path / "elsewhere"), "--search-dir", str(search_root())]
    with start_baseline([folder / "data"]) as baseline:
        words = [*search, "--environment", "mine", "--model-type", "vllm_model", "--model", baseline.model]
        words += ["--model-url", baseline.base_url, "--model-api-key", "none", head]
        words += ["+skip_venv_if_present=true", f"+uv_venv_dir={venvs}"]
        with gym_servers(words, port, tmp_path / "gym.log"):
            out = tmp_path / "out.jsonl"
            rows = [
                "--agent",
                "mine_agent",
                "--input",
                str(folder / "data" / "example.jsonl"),
                "--output",
                str(out),
            ]
            gym("eval", "run", "--no-serve", "--search-dir", str(search_root()), *rows, head, cwd=tmp_path)
    assert list(rewards(out).values()) == [1.0] * 5
