# SPDX-License-Identifier: Apache-2.0
"""The command's own process: what it imports, and what it refuses before anything is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.collection import probe_endpoint

COMMAND = [sys.executable, "-c", "from nemo_gym_video.cli import main; main()", "rollout"]


def test_the_process_that_waits_does_not_import_gym() -> None:
    code = (
        "import sys, nemo_gym_video.commands.rollout, nemo_gym_video.launch.collection\n"
        "import nemo_gym_video.launch.gym_servers\n"
        "print([name for name in ('nemo_gym', 'ray', 'pandas', 'torch', 'cv2', 'av') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_endpoint_that_is_not_there() -> None:
    with pytest.raises(ServerStartError, match=r"cannot be used .*refused.*127\.0\.0\.1:9"):
        probe_endpoint("http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--environment", "nowhere"], "environment was not found; got 'nowhere'; allowed:"),
        (["--environment", "caprl_mcqa", "--input", "none.jsonl"], "input file does not exist"),
        (["--environment", "caprl_mcqa", "--model", "gpt"], "needs --model-url; got 'gpt'"),
        (["--environment", "caprl_mcqa", "--model-url", "http://127.0.0.1:9/v1"], "model endpoint cannot be used"),
        (["--environment", "caprl_mcqa", "--model-url", "nonsense"], "is not an http or https URL"),
        (["--environment", "caprl_mcqa", "--model-url", "http://[::1/v1"], "model endpoint cannot be used"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    words = [*COMMAND, *options, "--output", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_only_bad_lines_start_no_server(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{\n")
    words = [*COMMAND, "--environment", "caprl_mcqa", "--input", str(tmp_path / "rows.jsonl"), "--output",
             str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "rows.jsonl:1: not valid JSON" in done.stderr) == (1, True)
    assert not (tmp_path / "out" / "logs").exists()
