# SPDX-License-Identifier: Apache-2.0
"""Gym's servers of one run, forked from a process that has imported nemo-gym once.

Gym's own start gives every server an interpreter that imports nemo-gym for itself (seconds of CPU each) and a Ray
cluster that none of these servers uses. Here the same ``app.py`` files run as ``__main__`` with the same
configuration, each in a process of its own, forked after the imports, on a port that was bound beforehand.

Run as ``python -m nemo_gym_video.launch.host SPEC.json``. One JSON command a line on standard input
(``{"collect": {...}}``), one JSON event a line on standard output; the end of the input stops everything.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.processes import Child, fork, last_lines, redirect_output, stop


@dataclass(frozen=True, slots=True)
class Instance:
    """One server of the merged configuration; ``settings`` is its own part of it."""

    name: str
    group: str
    implementation: str
    settings: Any

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.settings['host']}:{self.settings['port']}"


def preload() -> None:
    """Import what the servers and the collection need, so that the forks share it."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    import nemo_gym.base_environment_server
    import nemo_gym.base_resources_server
    import nemo_gym.base_responses_api_agent
    import nemo_gym.base_responses_api_model
    import nemo_gym.responses_converter
    import nemo_gym.rollout_collection
    import nemo_gym.rollout_health
    import nemo_gym.token_id_capture.external_capture
    import nemo_gym.verifier_fixture  # start-up: as above  # noqa: F401

    # start-up: these import nemo-gym.
    import nemo_gym_video.servers.agent
    import nemo_gym_video.servers.task_verifier  # start-up: imports nemo-gym  # noqa: F401


def merged_config(spec: dict[str, Any]) -> Any:
    """Gym's configuration from ``spec["config_paths"]`` with ``spec["overrides"]`` on top."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
    from omegaconf import OmegaConf

    initial = OmegaConf.create({"config_paths": spec["config_paths"], **spec["overrides"]})
    return GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=initial, skip_load_from_cli=True, skip_load_from_dotenv=True
        )
    )


def instances(config: Any) -> Iterator[Instance]:
    """Every server that a merged configuration defines."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    from nemo_gym.global_config import GlobalConfigDictParser

    for server in GlobalConfigDictParser().filter_for_server_instance_configs(config):
        group = server.SERVER_TYPE
        implementation = next(iter(getattr(server, group)))
        yield Instance(server.name, group, implementation, config[server.name][group][implementation])


def entry_point(instance: Instance) -> Path:
    """The server's ``app.py``, found where Gym finds it."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    from nemo_gym import _resolve_under_cwd_or_install

    folder = Path(_resolve_under_cwd_or_install(Path(instance.group) / instance.implementation))
    app = (folder / str(instance.settings["entrypoint"])).absolute()
    if not app.is_file():
        raise ServerStartError(f"server {instance.name} has no entry point", got=str(app))
    return app


def serve(instance: Instance, app: Path, listener: socket.socket) -> None:
    """Run one server's ``app.py`` as Gym does, on a socket that is already bound."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    import nemo_gym.server_utils
    import uvicorn

    original = uvicorn.run

    def on_listener(**options: Any) -> None:
        if (options.get("workers") or 1) > 1:
            listener.close()
            original(**options)
        else:
            uvicorn.Server(uvicorn.Config(**options)).run(sockets=[listener])

    def wants_ray(server_class: type) -> bool:
        return getattr(server_class, "ray_enabled", None) is True

    uvicorn.run = on_listener  # type: ignore[assignment]
    # A server that says nothing about Ray gets none: there is no cluster here, and none of Gym's relays uses it.
    nemo_gym.server_utils._server_uses_ray = wants_ray
    os.environ["NEMO_GYM_CONFIG_PATH"] = instance.name
    os.chdir(app.parent)
    sys.path[:0] = [str(app.parent), str(app.parents[2])]
    sys.argv = [str(app)]
    runpy.run_path(str(app), run_name="__main__")


def collect(options: dict[str, Any]) -> None:
    """Gym's own rollout collection against the servers of this host."""
    # start-up: nemo-gym takes seconds to import; only the host process does, once.
    from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper

    config = RolloutCollectionConfig.model_validate(options)
    asyncio.run(RolloutCollectionHelper().run_from_config(config))


class Host:
    """The servers of one run and the channel to the process that asked for them."""

    def __init__(self, spec: dict[str, Any], events: int) -> None:
        """``spec``: config_paths, overrides, logs, timeout_s. ``events``: file descriptor for events."""
        self._spec = spec
        self._events = events
        self._logs = Path(spec["logs"])
        self._instances: list[Instance] = []
        self._children: list[Child] = []

    def run(self) -> int:
        """Start, announce, obey until the input ends, stop. Returns the exit code."""
        started = time.monotonic()
        try:
            preload()
            self._start()
            self._wait_ready(started + self._spec["timeout_s"])
            self._say(event="ready", seconds=round(time.monotonic() - started, 2),
                      servers={instance.name: instance.url for instance in self._instances})  # fmt: skip
            while command := self._next_command():
                self._collect(command["collect"])
            return 0
        except ServerStartError as error:
            log = next((child.log for child in self._children if str(child.log) == error.where), None)
            self._say(event="failed", reason=str(error), code=error.code, lines=last_lines(log) if log else [])
            return 1
        finally:
            stop(self._children)

    def _say(self, **event: Any) -> None:
        os.write(self._events, (json.dumps(event) + "\n").encode())

    def _start(self) -> None:
        # start-up: nemo-gym takes seconds to import; only the host process does, once.
        from omegaconf import OmegaConf

        config = merged_config(self._spec)
        self._instances = list(instances(config))
        listeners = []
        for instance in self._instances:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((instance.settings["host"], 0))
            instance.settings["port"] = listener.getsockname()[1]
            listeners.append(listener)
        # Gym reads its configuration from here in every process that did not parse it.
        os.environ["NEMO_GYM_CONFIG_DICT"] = OmegaConf.to_yaml(config)
        gc.collect()
        gc.freeze()
        for instance, listener in zip(self._instances, listeners, strict=True):
            app = entry_point(instance)
            log = self._logs / f"{instance.name}.log"
            self._children.append(
                fork(instance.name, lambda i=instance, a=app, s=listener: serve(i, a, s), log)  # type: ignore[misc]
            )
        for listener in listeners:
            listener.close()

    def _wait_ready(self, deadline: float) -> None:
        waiting = list(self._instances)
        while waiting:
            self._check_alive("while starting")
            waiting = [instance for instance in waiting if not _answers(instance.url)]
            if waiting and time.monotonic() > deadline:
                raise ServerStartError(
                    f"server {waiting[0].name} did not answer in {self._spec['timeout_s']:g} s",
                    code="server.timeout",
                    where=str(self._logs / f"{waiting[0].name}.log"),
                )
            if waiting and _input_waits(0.1):
                raise SystemExit(143)

    def _collect(self, options: dict[str, Any]) -> None:
        log = self._logs / "collection.log"
        collector = fork("collection", lambda: collect(options), log)
        try:
            while (code := collector.poll()) is None:
                self._check_alive("during the collection")
                if _input_waits(0.1):
                    raise SystemExit(143)
        finally:
            stop([collector])
        self._say(event="collected", code=code, lines=last_lines(log) if code else [])

    def _check_alive(self, when: str) -> None:
        for child in self._children:
            if (code := child.poll()) is not None:
                raise ServerStartError(
                    f"server {child.name} ended {when} (exit code {code})",
                    code="server.ended",
                    where=str(child.log),
                )

    def _next_command(self) -> dict[str, Any] | None:
        while not _input_waits(0.5):
            self._check_alive("while idle")
        line = sys.stdin.buffer.readline()
        return json.loads(line) if line else None


def _input_waits(seconds: float) -> bool:
    """Whether standard input has a line or has ended. Between commands only its end can be waiting."""
    return bool(select.select([0], [], [], seconds)[0])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(143)


def main() -> int:
    """Entry point of the host process; only events go to standard output, all else to ``host.log``."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _terminate)
    with open(sys.argv[1], encoding="utf-8") as stream:
        spec = json.load(stream)
    events = os.dup(1)
    log = Path(spec["logs"]) / "host.log"
    redirect_output(log)
    try:
        return Host(spec, events).run()
    except Exception as error:  # noqa: BLE001 - whatever stops a start is told to the caller, with its traceback logged
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:2000]
        os.write(events, (json.dumps({"event": "failed", "reason": reason, "lines": []}) + "\n").encode())
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
