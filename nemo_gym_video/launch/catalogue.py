# SPDX-License-Identifier: Apache-2.0
"""The environments that can be started by name: their configuration, agents, and example rows. Reads YAML only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.servers.gym_root import search_root

_AGENTS = "responses_api_agents"
_EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInstance:
    """One agent instance: its name, the implementation it runs, and the environment that defines it."""

    name: str
    implementation: str
    environment: str
    media_roots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment: its configuration file as Gym finds it, its agents, and (agent, file) of its examples."""

    name: str
    config_path: str
    root: Path
    agents: tuple[AgentInstance, ...]
    examples: tuple[tuple[str, Path], ...]


def search_roots() -> tuple[Path, ...]:
    """Where environments are looked for: Gym's extra roots, the working directory, and this package's own."""
    extra = [Path(root) for root in os.environ.get(_EXTRA_ROOTS, "").split(os.pathsep) if root]
    return tuple(dict.fromkeys(root.absolute() for root in (*extra, Path.cwd(), search_root())))


def environment_names(roots: Sequence[Path] | None = None) -> tuple[str, ...]:
    """Every environment under the search roots that runs the video agent or any other."""
    roots = search_roots() if roots is None else roots
    found = {path.parent.name for root in roots for path in root.glob("environments/*/config.yaml")}
    return tuple(sorted(found))


def load_environment(name: str, roots: Sequence[Path] | None = None) -> Environment:
    """Read one environment by name.

    Raises:
        ServerStartError: there is none of that name, or its configuration is no YAML mapping.
    """
    roots = search_roots() if roots is None else roots
    relative = f"environments/{name}/config.yaml"
    root = next((root for root in roots if (root / relative).is_file()), None)
    if root is None or "/" in name or name in ("", ".", ".."):
        raise ServerStartError(
            "no such environment",
            code="environment.unknown",
            got=name,
            allowed=", ".join(environment_names(roots)),
        )
    configs = list(_configs(relative, roots))
    agents: dict[str, AgentInstance] = {}
    for path, config in configs:
        for instance, implementation, settings in _agent_blocks(config):
            known = agents.get(instance)
            agents[instance] = AgentInstance(
                name=instance,
                implementation=implementation,
                environment=known.environment if known else Path(path).parent.name,
                media_roots=tuple(settings.get("media_roots") or (known.media_roots if known else ())),
            )
    # What an environment declares itself stands for it; one that only includes others has theirs.
    examples = _examples(configs[-1][1], roots) or tuple(
        example for _, config in configs for example in _examples(config, roots)
    )
    return Environment(
        name=name, config_path=relative, root=root, agents=tuple(agents.values()), examples=examples
    )


def _examples(config: Mapping[str, Any], roots: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    return tuple(
        (instance, _resolve(dataset["jsonl_fpath"], roots))
        for instance, _, settings in _agent_blocks(config)
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
        raise ServerStartError("configuration is no YAML mapping", code="environment.config", got=relative)
    for inner in config.get("config_paths") or ():
        yield from _configs(str(inner), roots)
    yield relative, config


def _agent_blocks(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for instance, groups in config.items():
        blocks = groups.get(_AGENTS) if isinstance(groups, Mapping) else None
        for implementation, settings in (blocks or {}).items():
            if isinstance(settings, Mapping):
                yield str(instance), str(implementation), settings


def _resolve(relative: str, roots: Sequence[Path]) -> Path:
    return next((root / relative for root in roots if (root / relative).exists()), roots[0] / relative)
