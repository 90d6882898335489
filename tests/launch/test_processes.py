# SPDX-License-Identifier: Apache-2.0
"""Child processes: their logs, their ends, and what happens to them when their parent goes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.processes import ProcessGroup, last_lines

FORKS = """
import os, sys, time
from pathlib import Path
from nemo_gym_video.launch.processes import fork, stop
log = Path(sys.argv[1])
def speak():
    print("hello"); os.write(2, b"from below\\n")
def fail():
    raise ValueError("what went wrong")
bodies = {"speak": speak, "fail": fail, "leave": lambda: sys.exit(7)}
children = [fork(name, body, log / name) for name, body in bodies.items()]
while any(child.poll() is None for child in children):
    time.sleep(0.01)
print([child.poll() for child in children], flush=True)
sleeper = fork("sleep", lambda: time.sleep(60), log / "sleep")
print(sleeper.pid, flush=True)
if len(sys.argv) > 2:
    time.sleep(60)
stop([sleeper])
print(sleeper.poll(), flush=True)
"""


def test_children_write_to_their_logs_and_say_how_they_ended(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, tmp_path], capture_output=True, text=True, check=True)
    codes, pid, stopped = done.stdout.splitlines()
    assert codes == "[0, 1, 7]"
    assert stopped == str(-signal.SIGTERM)
    assert not Path(f"/proc/{pid}").exists()
    assert last_lines(tmp_path / "speak") == ["hello", "from below"]
    assert last_lines(tmp_path / "fail")[-1] == "ValueError: what went wrong"


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FORKS, tmp_path, "stay"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    assert ends(pid)


def ends(pid: int) -> bool:
    """Whether a process is gone within a few seconds; one that is not is killed."""
    for _ in range(200):
        if not alive(pid):
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_last_lines_of_nothing() -> None:
    assert last_lines(Path("/no/such/file")) == []


ECHO = """
import sys, json
print(json.dumps({"ready": 1}), flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""
PARENT = """
import subprocess, sys, json
child = subprocess.Popen(["sleep", "60"])
print(json.dumps({"pid": child.pid}), flush=True)
sys.stdin.read()
"""


def test_a_group_speaks_json_lines_and_ends_with_its_input(tmp_path: Path) -> None:
    group = ProcessGroup([sys.executable, "-c", ECHO], log=tmp_path / "log")
    assert group.next_line(30) == {"ready": 1}
    assert group.next_line(0.05) is None
    group.send({"collect": 2})
    assert group.next_line(30) == {"collect": 2}
    group.stop()
    assert group.process.returncode == 0


def test_a_group_that_ended_says_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('no luck\\n'); sys.exit(3)"
    group = ProcessGroup([sys.executable, "-c", code], log=tmp_path / "engine.log")
    for _ in range(2):
        with pytest.raises(ServerStartError, match=r"engine ended \(exit code 3\).*no luck"):
            group.next_line(30)
    group.stop()


def test_stopping_takes_grandchildren_along(tmp_path: Path) -> None:
    group = ProcessGroup([sys.executable, "-c", PARENT], log=tmp_path / "log")
    told = group.next_line(30)
    assert told is not None
    group.stop()
    assert ends(told["pid"])


def test_a_group_that_does_not_heed_its_input_is_asked_at_once(tmp_path: Path) -> None:
    code = "import time; print('{}', flush=True); time.sleep(60)"
    group = ProcessGroup([sys.executable, "-c", code], log=tmp_path / "log", ends_with_input=False)
    assert group.next_line(30) == {}
    started = time.monotonic()
    group.stop()
    assert time.monotonic() - started < 5
    assert group.process.returncode == -signal.SIGTERM
