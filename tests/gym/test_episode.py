# SPDX-License-Identifier: Apache-2.0
"""The loop between model and environment, with neither behind HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nemo_gym_video.episodes.observation import Observation, text_part
from nemo_gym_video.gym.episode import Episode, ModelCallFailed, SingleTurn, run_episode


class Talker:
    """Answers from a list; an exception in it is raised. Keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[Any]] = []

    async def respond(self, messages: Sequence[Any]) -> dict[str, Any]:
        self.asked.append(list(messages))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return response(answer, prompt=[1] * len(messages))


def response(text: str, *, prompt: list[int], **more: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}],
               "prompt_token_ids": prompt, "generation_token_ids": [7, 8]}  # fmt: skip
    usage = {"input_tokens": 3, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}
    return {"id": f"resp_{text}", "output": [message], "usage": usage, **more}


class Asker:
    """Answers each turn from a list."""

    def __init__(self, *observations: Observation) -> None:
        self.observations = list(observations)
        self.seen: list[Sequence[Mapping[str, Any]]] = []

    async def step(self, output: Sequence[Mapping[str, Any]]) -> Observation:
        self.seen.append(output)
        return self.observations.pop(0)


START = [{"role": "user", "content": "go"}]
MORE = Observation(parts=(text_part("more"),))
DONE = Observation(done=True)
UNREACHABLE = ModelCallFailed("gone", failure_kind="transport_unreachable")


def play(model: Talker, environment: Any = None, **options: Any) -> Episode:
    return asyncio.run(run_episode(START, model=model, environment=environment or SingleTurn(), **options))


def test_a_single_turn_is_one_call() -> None:
    model = Talker("a")
    episode = play(model)
    assert model.asked == [START]
    assert [call.model_call_id for call in episode.calls] == ["resp_a"]
    assert episode.reason == "completed"
    assert episode.response()["usage"]["input_tokens"] == 3


def test_observations_are_user_messages_and_part_of_the_output() -> None:
    model = Talker("a", "b")
    episode = play(model, Asker(MORE, DONE))
    assert [item["role"] for item in episode.output] == ["assistant", "user", "assistant"]
    assert model.asked[1] == [*START, *episode.output[:2]]
    assert [list(call.prompt_token_ids or ()) for call in episode.calls] == [[1], [1, 1, 1]]
    usage = episode.response()["usage"]
    assert (usage["output_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (4, 2)


def test_every_tool_call_gets_its_output_before_the_message() -> None:
    observation = Observation(parts=(text_part("look"),), tool_outputs=(("c1", "one"), ("c2", "two")))
    episode = play(Talker("a", "b"), Asker(observation, DONE))
    kinds = [item["type"] for item in episode.output]
    assert kinds == ["message", "function_call_output", "function_call_output", "message", "message"]
    assert [item.get("call_id") for item in episode.output[1:3]] == ["c1", "c2"]


def test_the_environment_sees_only_the_turns_own_output() -> None:
    environment = Asker(MORE, DONE)
    play(Talker("a", "b"), environment)
    assert [len(output) for output in environment.seen] == [1, 1]


def test_a_turn_limit_ends_the_episode() -> None:
    episode = play(Talker("a", "b", "c"), Asker(MORE, MORE, MORE), max_turns=2)
    assert (len(episode.calls), episode.reason) == (2, "turn_limit")
    assert episode.output[-1]["role"] == "assistant"


def test_an_observation_that_is_refused_is_not_sent() -> None:
    episode = play(Talker("a", "b"), Asker(MORE, DONE), admit=lambda observation, episode: "token_budget")
    assert (len(episode.calls), episode.reason, len(episode.output)) == (1, "token_budget", 1)


def test_the_environments_reason_is_kept() -> None:
    assert play(Talker("a"), Asker(Observation(done=True, reason="answered"))).reason == "answered"


def test_a_model_error_in_the_first_call_is_raised() -> None:
    with pytest.raises(ModelCallFailed):
        play(Talker(UNREACHABLE))


def test_a_later_model_error_ends_the_episode_with_what_there_is() -> None:
    episode = play(Talker("a", UNREACHABLE), Asker(MORE, DONE))
    assert (episode.reason, episode.failure, len(episode.calls)) == ("model_error", UNREACHABLE, 1)
    assert episode.response()["id"] == "resp_a"
