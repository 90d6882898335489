# SPDX-License-Identifier: Apache-2.0
"""Starts the servers of one run in a process group of their own, and ends them whatever happens.

Imports nothing heavy: nemo-gym is imported once, in the host process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.processes import last_lines
from nemo_gym_video.servers.gym_root import search_root

_EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"
_STOP_GRACE_S = 10.0
_TERMINATE_GRACE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start: Gym configuration files (as Gym finds them), values laid over them, and where logs go.

    ``variables`` are environment variables that every server sees.
    """

    config_paths: tuple[str, ...]
    overrides: Mapping[str, Any]
    logs: Path
    timeout_s: float = 110.0
    search_roots: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class ProcessGroup:
    """A child process that leads its own process group, which ends with it.

    ``stop`` closes its input, then asks, then kills, each only if needed; what is left of the group is killed.
    """

    def __init__(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> None:
        """Start ``command``; its standard error goes to ``log``, standard output is read line by line."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
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
        for ask, grace in ((None, _STOP_GRACE_S), (signal.SIGTERM, _TERMINATE_GRACE_S)):
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


class GymServers:
    """Running servers of one launch. A context manager: leaving it ends every process."""

    def __init__(self, group: ProcessGroup, urls: Mapping[str, str], seconds: float, logs: Path) -> None:
        """Use ``GymServers.start``."""
        self._group = group
        self.urls = urls
        self.seconds = seconds
        self.logs = logs

    @classmethod
    def start(cls, launch: Launch) -> Self:
        """Start every server and wait until all answer.

        Raises:
            ServerStartError: one ended or did not answer in time; its last lines are in the message.
        """
        launch.logs.mkdir(parents=True, exist_ok=True)
        spec = launch.logs / "launch.json"
        spec.write_text(json.dumps({
            "config_paths": list(launch.config_paths), "overrides": dict(launch.overrides),
            "logs": str(launch.logs.absolute()), "timeout_s": launch.timeout_s,
        }), encoding="utf-8")  # fmt: skip
        spec.chmod(0o600)
        command = [sys.executable, "-m", "nemo_gym_video.launch.host", str(spec)]
        group = ProcessGroup(command, log=launch.logs / "host.log", environment=_environment(launch))
        try:
            event = group.next_line(launch.timeout_s + 5.0)
            if event is None:
                raise ServerStartError(
                    f"the servers did not start in {launch.timeout_s:g} s",
                    code="server.timeout",
                    got="\n".join(last_lines(group.log)),
                )
            if event["event"] != "ready":
                raise _told_failure(event)
        except BaseException:
            group.stop()
            raise
        return cls(group, event["servers"], event["seconds"], launch.logs)

    def collect(self, options: Mapping[str, Any]) -> None:
        """Begin a collection with Gym's own ``RolloutCollectionConfig`` fields; ``collected`` tells its end."""
        self._group.send({"collect": dict(options)})

    def collected(self, timeout_s: float) -> bool:
        """Whether the collection has ended, waiting up to ``timeout_s``.

        Raises:
            ServerStartError: the collection or a server failed.
        """
        event = self._group.next_line(timeout_s)
        if event is None:
            return False
        if event["event"] == "failed":
            raise _told_failure(event)
        if event["code"] != 0:
            raise ServerStartError(
                "Gym's rollout collection failed: " + " | ".join(event["lines"][-3:]),
                code="server.collection",
                where=str(self.logs / "collection.log"),
            )
        return True

    def wait_collected(self, timeout_s: float) -> None:
        """Wait for the end of a collection; ``ServerStartError`` when it takes longer."""
        deadline = time.monotonic() + timeout_s
        while not self.collected(0.5):
            if time.monotonic() > deadline:
                raise ServerStartError(f"the collection took longer than {timeout_s:g} s", code="server.timeout")

    def stop(self) -> None:
        """End every process of the launch."""
        self._group.stop()

    def __enter__(self) -> Self:
        """The running servers."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process."""
        self.stop()


def _environment(launch: Launch) -> dict[str, str]:
    roots = [str(root) for root in (*launch.search_roots, search_root())]
    roots += [root for root in os.environ.get(_EXTRA_ROOTS, "").split(os.pathsep) if root]
    joined = os.pathsep.join(dict.fromkeys(roots))
    return {**os.environ, **launch.variables, _EXTRA_ROOTS: joined, "PYTHONUNBUFFERED": "1"}


def _told_failure(event: Mapping[str, Any]) -> ServerStartError:
    # The failing server's own words are worth more than one line.
    return ServerStartError(str(event["reason"]), code=event.get("code"), lines=event.get("lines") or ())


def _pump(stream: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
