# SPDX-License-Identifier: Apache-2.0
"""Every child process of a run, with a log each: groups that speak JSON lines, and forks.

None outlives its maker.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nemo_gym_video.errors import ServerStartError

_PR_SET_PDEATHSIG = 1
_STOP_GRACE_S = 5.0
_INPUT_GRACE_S = 10.0
_TERMINATE_GRACE_S = 3.0


class ProcessGroup:
    """A child process that leads its own process group, which ends with it.

    ``stop`` closes its input, then asks, then kills, each only if needed; what is left of the group is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        ends_with_input: bool = True,
    ) -> None:
        """Start ``command``; its standard error goes to ``log``, standard output is read line by line.

        ``ends_with_input`` says whether it ends by itself once its input is closed, which is worth waiting for.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._input_grace_s = _INPUT_GRACE_S if ends_with_input else 0.0
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                env=None if environment is None else dict(environment),
            )  # fmt: skip
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(target=_pump, args=(self.process.stdout, self._lines), daemon=True).start()

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one JSON line to the child."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def next_line(self, timeout_s: float) -> dict[str, Any] | None:
        """The next JSON object that the child prints; None when nothing came in time.

        Raises:
            ServerStartError: the child has ended.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
            code = self.process.wait()
            lines = last_lines(self.log)
            raise ServerStartError(
                f"{self.log.stem} ended (exit code {code})", code="server.ended", got="\n".join(lines) or None
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the child and its group; returns when they are gone."""
        group = self.process.pid
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        for ask, grace in ((None, self._input_grace_s), (signal.SIGTERM, _TERMINATE_GRACE_S)):
            if self.process.poll() is None and ask is not None:
                self.process.send_signal(ask)
            try:
                self.process.wait(grace)
                break
            except subprocess.TimeoutExpired:
                continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self.process.wait()


@dataclass(slots=True)
class Child:
    """One forked process: what it is called, its process id and its log file."""

    name: str
    pid: int
    log: Path
    status: int | None = None

    def poll(self) -> int | None:
        """The exit code once the process has ended (negative: the signal that ended it), else None."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)


def last_lines(log: Path, count: int = 12) -> list[str]:
    """The last non-empty lines of a log file, for a person; empty when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 32768))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


def redirect_output(log: Path) -> None:
    """Send this process's standard output and error to ``log``, whoever writes there."""
    log.parent.mkdir(parents=True, exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)


def fork(name: str, body: Callable[[], object], log: Path) -> Child:
    """Run ``body`` in a forked child whose output goes to ``log`` and whose exit code says how it went.

    Call from the main thread only: the kernel ends the child when the thread that forked it is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return Child(name, pid, log)
    code = 1
    try:
        _leave_parent(parent, log)
        body()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - the outermost frame of a process: say what happened and end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _leave_parent(parent: int, log: Path) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before it could be asked to take this one along
        raise SystemExit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    redirect_output(log)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def stop(children: Sequence[Child]) -> None:
    """End every child: politely first, by force after a few seconds; none is left unreaped."""
    for child in children:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_GRACE_S
    while any(child.poll() is None for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in children:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            _, child.status = os.waitpid(child.pid, 0)


def _pump(stream: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
