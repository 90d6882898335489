# SPDX-License-Identifier: Apache-2.0
"""How an episode begins, goes on and ends, with a scripted model and environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nemo_gym_video.messages import text_part
from nemo_gym_video.servers.failure import failure_kind
from nemo_gym_video.servers.play import EnvironmentFailed, ModelCallFailed, PlayedEpisode, SingleTurn, run_episode
from nemo_gym_video.tasks.observation import Observation

QUESTION = {"role": "user", "content": "look"}


def answer(text: str, **more: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"id": text, "output": [message], "usage": {"input_tokens": 2, "output_tokens": 1}, **more}


@dataclass
class Scripted:
    answers: list[dict[str, Any] | ModelCallFailed]
    seen: list[list[Any]] = field(default_factory=list)

    async def respond(self, messages: Sequence[Any]) -> dict[str, Any]:
        self.seen.append(list(messages))
        said = self.answers[len(self.seen) - 1]
        if isinstance(said, ModelCallFailed):
            raise said
        return said


@dataclass
class World:
    observations: list[Observation | EnvironmentFailed]
    turns: int = 0

    async def step(self, output: Sequence[Mapping[str, Any]]) -> Observation:
        said = self.observations[self.turns]
        self.turns += 1
        if isinstance(said, EnvironmentFailed):
            raise said
        return said


MORE = Observation(parts=(text_part("more"),), info={"turn": 1})
END = Observation(done=True, reason="answered")


def play(model: Scripted, environment: Any, **options: Any) -> PlayedEpisode:
    return asyncio.run(run_episode([QUESTION], model=model, environment=environment, **options))


def test_a_single_turn_is_one_call() -> None:
    model = Scripted([answer("a")])
    episode = play(model, SingleTurn())
    assert [item["role"] for item in episode.output] == ["assistant"]
    assert episode.reason == "completed"


def test_observations_become_user_messages_that_the_next_call_sees() -> None:
    model = Scripted([answer("a"), answer("b")])
    episode = play(model, World([MORE, END]))
    assert [item["role"] for item in episode.output] == ["assistant", "user", "assistant"]
    assert len(model.seen[1]) == 3
    assert episode.reason == "answered"
    assert episode.info == [{"turn": 1}]
    assert episode.response()["usage"] == {"input_tokens": 4, "output_tokens": 2}


def test_tool_outputs_stand_before_the_message_with_their_media() -> None:
    observation = Observation(parts=(text_part("frames"),), tool_outputs=(("c1", "one"), ("c2", "two")))
    episode = play(Scripted([answer("a"), answer("b")]), World([observation, END]))
    assert [item["type"] for item in episode.output] == [
        "message", "function_call_output", "function_call_output", "message", "message"
    ]  # fmt: skip
    assert [item.get("call_id") for item in episode.output[1:3]] == ["c1", "c2"]


def test_the_turn_limit_ends_before_another_observation_is_sent() -> None:
    model = Scripted([answer("a"), answer("b"), answer("c")])
    episode = play(model, World([MORE, MORE, MORE]), max_turns=2)
    assert episode.reason == "turn_limit"
    assert [item["role"] for item in episode.output] == ["assistant", "user", "assistant"]
    assert len(model.seen) == 2


def test_an_observation_that_is_not_admitted_is_not_sent() -> None:
    async def admit(observation: Observation, episode: PlayedEpisode) -> str:
        return "token_budget"

    model = Scripted([answer("a")])
    episode = play(model, World([MORE]), admit=admit)
    assert episode.reason == "token_budget"
    assert [item["role"] for item in episode.output] == ["assistant"]


def test_an_admitted_observation_goes_out_as_it_was_returned() -> None:
    async def admit(observation: Observation, episode: PlayedEpisode) -> Observation:
        return Observation(parts=(text_part("resolved"),))

    model = Scripted([answer("a"), answer("b")])
    play(model, World([MORE, END]), admit=admit)
    assert model.seen[1][-1]["content"] == [text_part("resolved")]


def test_a_model_error_in_the_first_call_is_raised() -> None:
    with pytest.raises(ModelCallFailed):
        play(Scripted([ModelCallFailed("gone", code="engine.unreachable")]), SingleTurn())


class Says:
    """Answers every call with the same response."""

    def __init__(self, *output: dict[str, Any]) -> None:
        self.response = {"id": "r", "output": list(output), "incomplete_details": {"reason": "max_output_tokens"}}

    async def respond(self, messages: Sequence[Any]) -> dict[str, Any]:
        return self.response


def test_a_first_prompt_that_the_engine_refused_is_no_answer() -> None:
    model = Says({"type": "message", "role": "assistant", "content": []})
    with pytest.raises(ModelCallFailed, match="does not fit the engine's context") as caught:
        asyncio.run(run_episode([], model=model, environment=SingleTurn()))
    assert caught.value.code == "engine.prompt_too_long"
    assert failure_kind(caught.value) == "nemo_gym_video:prompt_refused"


def test_a_thought_that_was_cut_off_is_an_answer() -> None:
    model = Says({"type": "reasoning", "summary": []})
    assert asyncio.run(run_episode([], model=model, environment=SingleTurn())).reason == "incomplete"


def test_a_later_model_error_ends_the_episode_and_is_kept() -> None:
    model = Scripted([answer("a"), ModelCallFailed("gone", code="engine.unreachable")])
    episode = play(model, World([MORE, END]))
    assert episode.reason == "model_error"
    assert episode.failure is not None
    assert [item["role"] for item in episode.output] == ["assistant", "user"]


def test_an_environment_error_is_raised() -> None:
    with pytest.raises(EnvironmentFailed):
        play(Scripted([answer("a")]), World([EnvironmentFailed("lost")]))


def test_a_cut_off_answer_is_told_apart() -> None:
    cut = answer("a", incomplete_details={"reason": "max_output_tokens"})
    assert play(Scripted([cut]), SingleTurn()).reason == "incomplete"
