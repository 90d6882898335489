# SPDX-License-Identifier: Apache-2.0
"""One episode: model and environment speak in turn until one of them is done. A single turn is the simplest case.

Knows nothing of HTTP: the model and the environment are two small protocols. What the environment says between two
model turns is appended as a user message (tool outputs as such), and so becomes part of the response's output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.tasks.answers.visible import assistant_text
from nemo_gym_video.tasks.observation import Observation

_TOO_LONG = "the prompt does not fit the engine's context: show fewer frames, or raise its max_model_len"


class ModelCallFailed(NemoGymVideoError):
    """The model server could not be reached, or answered with an error; ``code`` says which (``engine.…``)."""

    code = "engine.failed"


class EnvironmentFailed(NemoGymVideoError):
    """The verifier server failed in a step, the verification, or the session around them (``verifier.…``)."""

    code = "verifier.failed"


class Model(Protocol):
    """Whatever answers messages."""

    async def respond(self, messages: Sequence[Any]) -> dict[str, Any]:
        """One model call: the response as JSON. Raises ``ModelCallFailed``."""
        ...


class Environment(Protocol):
    """Whatever answers a model turn."""

    async def step(self, output: Sequence[Mapping[str, Any]]) -> Observation:
        """The answer to one turn's output items. Raises ``EnvironmentFailed``."""
        ...


class SingleTurn:
    """The environment of a row that is one question: done after the first answer."""

    async def step(self, output: Sequence[Mapping[str, Any]]) -> Observation:
        """Always done."""
        return Observation(done=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call: how many messages went in, and what came out.

    ``prompt_token_ids`` and ``generation_token_ids`` are None when the model server returns no token ids.
    """

    messages: int
    response: Mapping[str, Any]
    prompt_token_ids: Sequence[int] | None
    generation_token_ids: Sequence[int] | None

    @property
    def model_call_id(self) -> str:
        """The response's id."""
        return str(self.response.get("id", ""))


@dataclass(slots=True)
class PlayedEpisode:
    """What happened: the request's messages, the output items in order, the calls, and why it ended.

    ``reason`` is one word, ``completed`` when the environment said it is done; ``failure`` what ended it early.
    """

    messages: list[Any]
    output: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    info: list[dict[str, Any]] = field(default_factory=list)
    reason: str = "completed"
    failure: NemoGymVideoError | None = None

    def response(self) -> dict[str, Any]:
        """The last call's response with the whole episode's output and usage."""
        last = dict(self.calls[-1].response)
        last["output"] = self.output
        last["usage"] = _total_usage([call.response.get("usage") for call in self.calls])
        return last


async def run_episode(
    messages: Sequence[Any],
    *,
    model: Model,
    environment: Environment,
    max_turns: int | None = None,
    admit: Callable[[Observation, PlayedEpisode], Awaitable[Observation | str]] | None = None,
) -> PlayedEpisode:
    """Drive one episode to its end.

    ``admit`` gets each observation that is about to be sent and returns it as it goes out (media resolved), or a
    word that ends the episode instead (a token budget). A model error in the first call is raised: nothing has
    happened yet that could be scored. Later ones, and prompts that the engine refuses, end the episode.

    Raises:
        ModelCallFailed: the first call failed.
        EnvironmentFailed: a step failed.
    """
    episode = PlayedEpisode(messages=list(messages))
    while True:
        try:
            call = await _call(model, episode)
        except ModelCallFailed as error:
            if not episode.calls:
                raise
            episode.reason, episode.failure = "model_error", error
            return episode
        if _never_ran(call):
            why = call.response["incomplete_details"]
            failure = ModelCallFailed(_TOO_LONG, code="engine.prompt_too_long", got=why)
            if not episode.calls:
                raise failure
            episode.reason, episode.failure = "prompt_refused", failure
            return episode
        episode.calls.append(call)
        output = list(call.response["output"])
        episode.output.extend(output)
        if call.response.get("incomplete_details"):
            episode.reason = "incomplete"
        observation = await environment.step(output)
        if observation.info:
            episode.info.append(observation.info)
        if observation.done:
            episode.reason = observation.reason or episode.reason
            return episode
        if max_turns is not None and len(episode.calls) >= max_turns:
            episode.reason = "turn_limit"
            return episode
        admitted = await admit(observation, episode) if admit is not None else observation
        if isinstance(admitted, str):
            episode.reason = admitted
            return episode
        observation = admitted
        episode.output.extend(observation_items(observation))


async def _call(model: Model, episode: PlayedEpisode) -> Call:
    conversation = [*episode.messages, *episode.output]
    response = await model.respond(conversation)
    outputs: list[dict[str, Any]] = response["output"]
    carrier: dict[str, Any] = next((item for item in reversed(outputs) if item.get("generation_token_ids")), {})
    return Call(
        messages=len(conversation),
        response=response,
        prompt_token_ids=carrier.get("prompt_token_ids"),
        generation_token_ids=carrier.get("generation_token_ids"),
    )


def _never_ran(call: Call) -> bool:
    """Whether the prompt was refused as too long: Gym's model server then makes up an empty, cut-off answer."""
    output = call.response["output"]
    said = assistant_text(output).strip() or any(item.get("type") != "message" for item in output)
    return bool(call.response.get("incomplete_details")) and not call.generation_token_ids and not said


def observation_items(observation: Observation) -> list[dict[str, Any]]:
    """The output items that carry an observation: tool outputs first, then one user message with its parts."""
    items: list[dict[str, Any]] = [
        {"type": "function_call_output", "call_id": call_id, "output": text}
        for call_id, text in observation.tool_outputs
    ]
    if observation.parts:
        items.append({"type": "message", "role": "user", "content": [dict(part) for part in observation.parts]})
    return items


def _total_usage(usages: Sequence[Any]) -> dict[str, Any] | None:
    """Sum of the calls' usage; None when no call reported any."""
    found = [usage for usage in usages if isinstance(usage, Mapping)]
    if not found:
        return None
    total: dict[str, Any] = {}
    for usage in found:
        for key, value in usage.items():
            if isinstance(value, Mapping):
                inner = total.setdefault(key, {})
                for name, number in value.items():
                    inner[name] = inner.get(name, 0) + (number or 0)
            else:
                total[key] = total.get(key, 0) + (value or 0)
    return total
