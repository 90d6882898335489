# SPDX-License-Identifier: Apache-2.0
"""What the scoring servers share: requests and answers, scoring off the event loop, aggregate metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.reward_profile import compute_pass_majority_metrics, compute_subset_metrics, highest_k_metrics
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

TaskRollouts = list[dict[str, Any]]
"""The scored rollouts of one row."""

_TOKEN_FIELDS = {"prompt_token_ids", "generation_token_ids", "generation_log_probs"}


class ScoringConfig(BaseResourcesServerConfig):  # type: ignore[misc]
    """Configuration of a server that scores from the row and the answer alone."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS
    scoring_threads: int = Field(
        default=2,
        gt=0,
        description="Threads that score. More hold the event loop up more than they speed up scoring.",
    )


class ScoringRequest(BaseVerifyRequest):  # type: ignore[misc]
    """A rollout to score; the row's own fields stand at the top level."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _default_detail(cls, body: Any) -> Any:
        """Gym's typed parts insist on an image's ``detail``, which the rows that it collects need not carry."""
        params = body.get("responses_create_params") if isinstance(body, dict) else None
        messages = params.get("input") if isinstance(params, dict) else None
        if not isinstance(params, dict) or not isinstance(messages, list):
            return body
        return {**body, "responses_create_params": {**params, "input": [_with_detail(one) for one in messages]}}

    def row(self) -> dict[str, Any]:
        """The row's own fields, and its messages for checks that need them."""
        given = self.responses_create_params.input
        messages = given if isinstance(given, str) else [_message(item) for item in given]
        return {**(self.model_extra or {}), "responses_create_params": {"input": messages}}

    def answer(self) -> list[dict[str, Any]]:
        """The output items, without token ids."""
        return [item.model_dump(exclude=_TOKEN_FIELDS) for item in self.response.output]


class ScoringResponse(BaseVerifyResponse):  # type: ignore[misc]
    """The rollout with its score; the scorer's own fields stand at the top level."""

    model_config = ConfigDict(extra="allow")

    reason: str
    explanation: str


class ComponentsResponse(BaseMultiRewardVerifyResponse, ScoringResponse):  # type: ignore[misc]
    """A score that is the sum of named components."""


class ScoringServer(SimpleResourcesServer):  # type: ignore[misc]
    """Scores on a small pool of threads, so that the event loop never waits for a long answer."""

    ray_enabled = False
    config: ScoringConfig
    _pool: ThreadPoolExecutor = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Make the pool."""
        super().model_post_init(context)
        self._pool = ThreadPoolExecutor(self.config.scoring_threads, thread_name_prefix="scoring")

    async def in_pool[Result](self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, done on a scoring thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def mean_names(self) -> tuple[str, ...]:
        """The result fields whose means are key metrics."""
        return ()

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Mean reward, the scorer's means, and pass@k at the highest k."""
        wanted = {"mean/reward", *(f"measured/{name}" for name in self.mean_names())}
        key = {name: value for name, value in agent_metrics.items() if name in wanted}
        for pattern in ("pass@{k}", "pass@1[avg-of-{k}]", "majority@{k}"):
            key.update(highest_k_metrics(agent_metrics, pattern, score_names=["reward"]))
        return key


def scoring_metrics(
    tasks: Sequence[TaskRollouts], *, answer_key: str | None, subset_key: str | None, means: Sequence[str]
) -> dict[str, Any]:
    """Metrics over scored rollouts grouped by task row.

    ``measured/X`` is the mean of X over the rollouts that have one (a rate over nothing is no zero).
    """
    grouped = list(tasks)
    metrics: dict[str, Any] = compute_pass_majority_metrics(grouped, score_fn=_score, answer_key=answer_key)[0]
    if subset_key is not None:
        metrics.update(compute_subset_metrics(grouped, subset_key, score_fn=_score, answer_key=answer_key))
    rollouts = [rollout for task in grouped for rollout in task]
    metrics.update(_summary(rollouts, means))
    if subset_key is not None:
        for name in sorted({str(rollout[subset_key]) for rollout in rollouts if rollout.get(subset_key)}):
            own = [rollout for rollout in rollouts if str(rollout.get(subset_key)) == name]
            metrics.update({f"{name}/{key}": value for key, value in _summary(own, means).items()})
            metrics[f"{name}/mean/reward"] = fmean(rollout["reward"] for rollout in own)
    return metrics


def _with_detail(message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = [
        {"detail": "auto", **part} if isinstance(part, dict) and part.get("type") == "input_image" else part
        for part in message["content"]
    ]
    return {**message, "content": parts}


def _message(item: Any) -> dict[str, Any]:
    """A message's role and content, without copying what may be megabytes of media."""
    return {"role": getattr(item, "role", None), "content": getattr(item, "content", None)}


def _score(rollout: Mapping[str, Any]) -> dict[str, float]:
    return {"reward": float(rollout["reward"])}


def _summary(rollouts: Sequence[Mapping[str, Any]], means: Sequence[str]) -> dict[str, Any]:
    reasons = Counter(str(rollout["reason"]) for rollout in rollouts if rollout.get("reason"))
    summary: dict[str, Any] = {f"reason/{reason}": count for reason, count in sorted(reasons.items())}
    for name in means:
        values = [rollout[name] for rollout in rollouts if isinstance(rollout.get(name), int | float)]
        if values:
            summary[f"measured/{name}"] = fmean(values)
    return summary


def nothing_to_seed(server: object, request: object) -> None:
    """Fixture hook: scoring has no state and no chance in it, so a fresh server needs no seed."""


def offline[Server: ScoringServer](server: type[Server], config: type[ScoringConfig], **settings: Any) -> Server:
    """A server to call ``verify`` on in this process, without any HTTP: for fixtures and tests."""
    client = ServerClient(head_server_config=BaseServerConfig(host="127.0.0.1", port=0),
                          global_config_dict=OmegaConf.create({}))  # fmt: skip
    named = config(name="offline", host="127.0.0.1", port=0, entrypoint="app.py", domain="other", **settings)
    return server(config=named, server_client=client)
