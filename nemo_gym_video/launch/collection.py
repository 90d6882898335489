# SPDX-License-Identifier: Apache-2.0
"""One run: environments, rows and a model in; Gym's servers started, collected from, stopped; results added up."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.catalogue import EnvironmentEntry
from nemo_gym_video.launch.embedded_policy import start_baseline
from nemo_gym_video.launch.gym_servers import GymServers, ServerLaunch
from nemo_gym_video.launch.inputs import Inputs
from nemo_gym_video.launch.tail import Results
from nemo_gym_video.servers.gym_root import search_roots
from nemo_gym_video.servers.variables import MEDIA_ROOTS_VARIABLE, MEDIA_STORE_VARIABLE

VIDEO_AGENT = "video_agent"
MODEL_CONFIG = "responses_api_models/vllm_model/configs/vllm_model.yaml"
BASELINE_PROCESSOR = "nemotron_omni"
BASELINE_CONTEXT = 131072
BASELINE_FRAMES = 32

_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A vLLM-shaped model endpoint: base URL up to ``/v1``, the model's name, and the key to present."""

    base_url: str
    name: str
    api_key: str = "EMPTY"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything that decides a run. ``endpoint`` None means the embedded baseline.

    ``media_roots`` replace those that the environments configure when rows are the user's own. ``roots`` are where
    Gym looks for the environments and their servers.
    """

    environments: tuple[EnvironmentEntry, ...]
    inputs: Inputs
    output: Path
    endpoint: Endpoint | None = None
    media_roots: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = field(default_factory=search_roots)
    processor: str | None = None
    num_repeats: int = 1
    concurrency: int = 16
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def agents(self) -> dict[str, str]:
        """Agent name to the environment that defines it."""
        return {agent.name: agent.environment for one in self.environments for agent in one.agents}

    @property
    def rollouts(self) -> int:
        """How many rollouts the run asks for."""
        return len(self.inputs.rows) * self.num_repeats

    @property
    def rollouts_file(self) -> Path:
        """Where Gym's collection writes."""
        return self.output / "rollouts.jsonl"


def probe_endpoint(base_url: str, *, api_key: str = "EMPTY") -> tuple[str, ...]:
    """The model names an endpoint serves.

    Raises:
        ServerStartError: it cannot be reached, refuses the key, or does not list its models below this URL.
    """
    allowed = "the base URL of a running vLLM, up to /v1"
    if not base_url.startswith(("http://", "https://")):
        raise ServerStartError("model endpoint is not an http or https URL", code="engine.url", got=base_url,
                               allowed=allowed)  # fmt: skip
    try:
        request = urllib.request.Request(
            base_url.rstrip("/") + "/models", headers={"Authorization": f"Bearer {api_key}"}
        )
        with urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S) as answer:
            listed = json.load(answer)
        return tuple(model["id"] for model in listed["data"])
    except urllib.error.HTTPError as error:
        raise _refused_probe(base_url, error.code) from error
    except (OSError, http.client.HTTPException) as error:
        problem = f"model endpoint cannot be used ({getattr(error, 'reason', error)})"
        raise ServerStartError(problem, code="engine.unreachable", got=base_url, allowed=allowed) from error
    except (ValueError, KeyError, TypeError) as error:
        problem = f"model endpoint cannot be used (it does not list its models: {error})"
        raise ServerStartError(problem, code="engine.url", got=base_url, allowed=allowed) from error


def _refused_probe(base_url: str, status: int) -> ServerStartError:
    """Why ``GET /models`` got an error status, known to ``http.HTTPStatus`` or not."""
    problem = f"model endpoint answers {status} to GET /models"
    if status == 404:
        remedy = None if base_url.rstrip("/").endswith("/v1") else "add /v1 to the URL"
        return ServerStartError(problem, code="engine.url", got=base_url, remedy=remedy,
                                allowed="the base URL of a running vLLM, up to /v1")  # fmt: skip
    if status in (401, 403):
        return ServerStartError(problem, code="engine.auth", got=base_url,
                                remedy="set POLICY_API_KEY to a key that the endpoint takes")  # fmt: skip
    return ServerStartError(problem, code="engine.http", got=base_url)


@contextmanager
def running(plan: RunPlan, say: Callable[[str], None]) -> Iterator[GymServers]:
    """The plan's model and servers, for the length of the block."""
    if plan.endpoint is not None:
        with GymServers.start(_launch(plan, plan.endpoint)) as servers:
            yield servers
        return
    say("starting the embedded baseline")
    with start_baseline(_all_roots(plan), num_frames=BASELINE_FRAMES, max_model_len=BASELINE_CONTEXT) as baseline:
        endpoint = Endpoint(base_url=baseline.base_url, name=baseline.model)
        say("starting Gym's servers")
        with GymServers.start(_launch(plan, endpoint)) as servers:
            yield servers


def collect(plan: RunPlan, servers: GymServers, progress: Callable[[Results], None]) -> Results:
    """Collect the plan's rollouts; ``progress`` is called a few times a second.

    Raises:
        ServerStartError: a server or the collection itself ended early. What was collected stays in the files.
    """
    inputs = plan.output / "inputs.jsonl"
    plan.inputs.write(inputs)
    results = Results(plan.inputs.rows, plan.agents, plan.rollouts_file)
    servers.collect(_collection_options(plan, inputs))
    try:
        while not servers.collected(0.2):
            results.update()
            progress(results)
    except ServerStartError:
        results.update()
        # Gym calls a collection without a single result a failure; every row's own reason says more.
        if results.done < plan.rollouts:
            raise
    results.update()
    progress(results)
    return results


def write_record(
    plan: RunPlan, results: Results | None, *, seconds: Mapping[str, float], error: str | None
) -> None:
    """Write ``failures.jsonl`` (one line a problem, by file and line) and ``run.json``."""
    lines = [{"where": "", "reason": str(problem), "kind": "input", "rollouts": 0}
             for problem in plan.inputs.problems]  # fmt: skip
    for problem, count in (results.problems if results else {}).items():
        lines.append({"where": problem.place, "reason": problem.reason, "kind": problem.kind, "rollouts": count})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (plan.output / "failures.jsonl").write_text(text, encoding="utf-8")
    endpoint = plan.endpoint
    record = {
        "environments": [environment.name for environment in plan.environments],
        "model": {"name": endpoint.name, "base_url": endpoint.base_url} if endpoint else {"name": "baseline"},
        "processor": _processor(plan),
        "rows": len(plan.inputs.rows),
        "num_repeats": plan.num_repeats,
        "concurrency": plan.concurrency,
        "seconds": dict(seconds),
        "error": error,
        "results": {
            name: {"rows": tally.rows, "rollouts": tally.rollouts, "failed": tally.failed, "masked": tally.masked,
                   "mean_reward": tally.mean_reward, "mean_media_tokens": tally.mean_media_tokens}
            for name, tally in (results.tallies if results else {}).items()
        },
    }  # fmt: skip
    (plan.output / "run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _collection_options(plan: RunPlan, inputs: Path) -> dict[str, Any]:
    return {
        "input_jsonl_fpath": str(inputs.absolute()),
        "output_jsonl_fpath": str(plan.rollouts_file.absolute()),
        "num_repeats": plan.num_repeats,
        "num_repeats_add_seed": plan.num_repeats > 1,
        "num_samples_in_parallel": plan.concurrency,
        "route_failures_to_sidecar": True,
        "responses_create_params": dict(plan.request),
        "disable_health_check": True,
    }


def _processor(plan: RunPlan) -> str | None:
    return plan.processor or (BASELINE_PROCESSOR if plan.endpoint is None else None)


def _launch(plan: RunPlan, endpoint: Endpoint) -> ServerLaunch:
    logs = plan.output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    # With a file that names the endpoint, Gym's model server gives up on a dead one after a few tries.
    endpoint_file = logs.absolute() / "endpoint"
    endpoint_file.write_text(endpoint.base_url, encoding="utf-8")
    model_server = {
        "return_token_id_information": True,
        "request_prompt_and_generation_token_ids": True,
        "endpoint_file": str(endpoint_file),
    }
    overrides: dict[str, Any] = {
        "policy_base_url": endpoint.base_url,
        "policy_api_key": endpoint.api_key,
        "policy_model_name": endpoint.name,
        "policy_model": {"responses_api_models": {"vllm_model": model_server}},
    }
    for environment in plan.environments:
        for agent in environment.agents:
            if agent.implementation == VIDEO_AGENT:
                overrides[agent.name] = {"responses_api_agents": {VIDEO_AGENT: _agent_settings(plan)}}
    return ServerLaunch(
        config_paths=(*dict.fromkeys(one.config_path for one in plan.environments), MODEL_CONFIG),
        overrides=overrides,
        logs=logs,
        search_roots=plan.roots,
        # For verifier servers that read and make media themselves.
        variables={
            MEDIA_STORE_VARIABLE: str(_media_store(plan)),
            MEDIA_ROOTS_VARIABLE: os.pathsep.join(str(root) for root in _all_roots(plan)[1:]),
        },
    )


def _agent_settings(plan: RunPlan) -> dict[str, Any]:
    settings: dict[str, Any] = {"media_store": str(_media_store(plan))}
    if plan.media_roots:
        settings["media_roots"] = [str(root.absolute()) for root in plan.media_roots]
    if processor := _processor(plan):
        settings["processor"] = processor
    if plan.endpoint is None:
        settings["max_model_len"] = BASELINE_CONTEXT
        settings["video_sampling"] = {"convention": "nemo_rl", "num_frames": BASELINE_FRAMES}
    return settings


def _media_store(plan: RunPlan) -> Path:
    store = (plan.output / "media").absolute()
    store.mkdir(parents=True, exist_ok=True)
    return store


def _all_roots(plan: RunPlan) -> Sequence[Path]:
    """Every folder that the servers may name a file in: what the model must be allowed to read."""
    roots = [_media_store(plan), *(root.absolute() for root in plan.media_roots)]
    if not plan.media_roots:
        for environment in plan.environments:
            roots += [root for agent in environment.agents for root in agent.media_roots]
    more = os.environ.get(MEDIA_ROOTS_VARIABLE, "")
    roots += [Path(root).absolute() for root in more.split(os.pathsep) if root]
    return list(dict.fromkeys(roots))
