# SPDX-License-Identifier: Apache-2.0
"""The environments that can be started by name: their configuration, agents, and example rows. Reads YAML only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.servers.gym_root import is_environment_name, search_roots

_AGENTS = "responses_api_agents"
_VERIFIERS = "resources_servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReference:
    """A task as a verifier's block names it: ``reference`` for ``load_task`` (a file by its absolute path)."""

    reference: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInstance:
    """One agent instance: its name, the implementation it runs, and the environment that defines it.

    ``media_roots`` are absolute folders; ``task`` is that of the verifier it asks, None for a verifier without.
    """

    name: str
    implementation: str
    environment: str
    media_roots: tuple[Path, ...]
    task: TaskReference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentEntry:
    """One environment: its configuration file as Gym finds it, its agents, and (agent, file) of its examples."""

    name: str
    config_path: str
    folder: Path
    agents: tuple[AgentInstance, ...]
    examples: tuple[tuple[str, Path], ...]


def environment_names(roots: Sequence[Path] | None = None) -> tuple[str, ...]:
    """Every environment under the search roots that runs the video agent or any other."""
    roots = search_roots() if roots is None else roots
    return tuple(sorted({name for root in roots for name in _names_in(root)}))


def load_environment(name: str, roots: Sequence[Path] | None = None) -> EnvironmentEntry:
    """Read one environment by name from the first of ``roots`` that has it.

    Raises:
        ServerStartError: none has it (what each has is said), or its configuration is not a YAML mapping.
    """
    roots = search_roots() if roots is None else roots
    relative = f"environments/{name}/config.yaml"
    root = next((root for root in roots if (root / relative).is_file()), None)
    if root is None or not is_environment_name(name) or "/" in name:
        raise ServerStartError(
            "environment was not found", code="environment.unknown", got=name, allowed=_listing(roots)
        )
    configs = list(_configs(relative, roots))
    tasks = {
        instance: _task(settings, Path(path).parent.name, roots)
        for path, config in configs
        for instance, _, settings in _blocks(config, _VERIFIERS)
        if "task" in settings
    }
    agents: dict[str, AgentInstance] = {}
    for path, config in configs:
        for instance, implementation, settings in _blocks(config, _AGENTS):
            known = agents.get(instance)
            environment = known.environment if known else Path(path).parent.name
            verifier = settings.get("resources_server") or {}
            agents[instance] = AgentInstance(
                name=instance,
                implementation=implementation,
                environment=environment,
                media_roots=_media_roots(settings, environment, roots) or (known.media_roots if known else ()),
                task=tasks.get(str(verifier.get("name")), known.task if known else None),
            )
    # What an environment declares itself stands for it; one that only includes others has theirs.
    examples = _examples(configs[-1][1], roots) or tuple(
        example for _, config in configs for example in _examples(config, roots)
    )
    return EnvironmentEntry(
        name=name,
        config_path=relative,
        folder=root / "environments" / name,
        agents=tuple(agents.values()),
        examples=examples,
    )


def _names_in(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.glob("environments/*/config.yaml"))


def _listing(roots: Sequence[Path]) -> str:
    """What was found where, for a person."""
    places = [f"{', '.join(names)} (in {root})" for root in roots if (names := _names_in(root))]
    empty = [str(root) for root in roots if not _names_in(root)]
    return "; ".join([*places, *([f"none below {', '.join(empty)}"] if empty else [])])


def _media_roots(settings: Mapping[str, Any], environment: str, roots: Sequence[Path]) -> tuple[Path, ...]:
    folder = _folder(settings, environment, roots)
    return tuple(folder / str(root) for root in settings.get("media_roots") or ())


def _task(settings: Mapping[str, Any], environment: str, roots: Sequence[Path]) -> TaskReference:
    reference = str(settings["task"])
    if reference.partition(":")[0].endswith(".py"):
        reference = str(_folder(settings, environment, roots) / reference)
    return TaskReference(reference=reference, settings=settings.get("task_settings") or {})


def _folder(settings: Mapping[str, Any], environment: str, roots: Sequence[Path]) -> Path:
    """The folder that a server's block takes relative paths from."""
    return _resolve(f"environments/{settings.get('environment') or environment}", roots)


def _examples(config: Mapping[str, Any], roots: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    return tuple(
        (instance, _resolve(dataset["jsonl_fpath"], roots))
        for instance, _, settings in _blocks(config, _AGENTS)
        for dataset in settings.get("datasets") or ()
        if dataset.get("type") == "example"
    )


def _configs(relative: str, roots: Sequence[Path]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A configuration after everything that it includes, as Gym merges them."""
    path = _resolve(relative, roots)
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ServerStartError(
            f"configuration cannot be read ({error})", code="environment.config", got=relative
        ) from error
    if not isinstance(config, Mapping):
        raise ServerStartError("configuration is not a YAML mapping", code="environment.config", got=relative)
    for inner in config.get("config_paths") or ():
        yield from _configs(str(inner), roots)
    yield relative, config


def _blocks(config: Mapping[str, Any], group: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(Instance, implementation, settings) of every server of a group."""
    for instance, groups in config.items():
        blocks = groups.get(group) if isinstance(groups, Mapping) else None
        for implementation, settings in (blocks or {}).items():
            if isinstance(settings, Mapping):
                yield str(instance), str(implementation), settings


def _resolve(relative: str, roots: Sequence[Path]) -> Path:
    return next((root / relative for root in roots if (root / relative).exists()), roots[0] / relative)
