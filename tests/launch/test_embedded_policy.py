# SPDX-License-Identifier: Apache-2.0
"""The process: how it starts, what it says when it cannot, and that it never outlives its purpose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.embedded_policy import start_baseline


def gone(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_it_serves_for_the_length_of_the_block(tmp_path: Path) -> None:
    with start_baseline([tmp_path], model="flow", max_model_len=777) as baseline:
        with urllib.request.urlopen(f"{baseline.base_url}/models", timeout=10) as answer:
            (card,) = json.load(answer)["data"]
        assert (card["id"], card["max_model_len"]) == ("flow", 777)
    assert gone(baseline.pid)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--processor-overrides", '{"video_maintain_aspect": false}'], "video_maintain_aspect"),
        (["--processor-overrides", "["], "not valid JSON"),
        (["--processor", "qwen3_vl"], "Nemotron Omni"),
        (["--tile-policy", "none"], "tile-policy"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, options: list[str], word: str) -> None:
    with pytest.raises(ServerStartError, match=word), start_baseline([tmp_path], options=options):
        pass


def test_a_missing_media_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="nowhere"), start_baseline([tmp_path / "nowhere"]):
        pass


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_on_a_signal(tmp_path: Path, name: signal.Signals) -> None:
    command = [sys.executable, "-m", "nemo_gym_video.baseline", "--media-root", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["port"] > 0
        process.send_signal(name)
        assert process.wait(10) == 0


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'nemo_gym_video.baseline'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
    )
    parent = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert gone(int(parent.stdout))
