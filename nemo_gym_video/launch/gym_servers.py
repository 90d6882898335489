# SPDX-License-Identifier: Apache-2.0
"""Starts the servers of one run in a process group of their own, and ends them whatever happens.

Imports nothing heavy: nemo-gym is imported once, in the host process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.processes import ProcessGroup, last_lines
from nemo_gym_video.servers.gym_root import EXTRA_ROOTS_VARIABLE, search_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLaunch:
    """What to start: Gym configuration files (as Gym finds them), values laid over them, and where logs go.

    ``variables`` are environment variables that every server sees.
    """

    config_paths: tuple[str, ...]
    overrides: Mapping[str, Any]
    logs: Path
    timeout_s: float = 110.0
    search_roots: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class GymServers:
    """Running servers of one launch. A context manager: leaving it ends every process."""

    def __init__(self, group: ProcessGroup, urls: Mapping[str, str], seconds: float, logs: Path) -> None:
        """Use ``GymServers.start``."""
        self._group = group
        self.urls = urls
        self.seconds = seconds
        self.logs = logs

    @classmethod
    def start(cls, launch: ServerLaunch) -> Self:
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


def _environment(launch: ServerLaunch) -> dict[str, str]:
    roots = [str(root) for root in (*launch.search_roots, search_root())]
    roots += [root for root in os.environ.get(EXTRA_ROOTS_VARIABLE, "").split(os.pathsep) if root]
    joined = os.pathsep.join(dict.fromkeys(roots))
    return {**os.environ, **launch.variables, EXTRA_ROOTS_VARIABLE: joined, "PYTHONUNBUFFERED": "1"}


def _told_failure(event: Mapping[str, Any]) -> ServerStartError:
    # The failing server's own words are worth more than one line.
    return ServerStartError(str(event["reason"]), code=event.get("code"), lines=event.get("lines") or ())
