# SPDX-License-Identifier: Apache-2.0
"""The baseline must see: on the demo's kinds of rows it clearly beats every policy that does not look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from nemo_gym_video.baseline.engine import Engine
from nemo_gym_video.media import video as media_video
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.prepare.blind_sum import BlindScores
from nemo_gym_video.prepare.synthetic.demo_rows import ENVIRONMENTS, DemoRows, demo_rows
from nemo_gym_video.prepare.synthetic.multi_turn_rows import explorer_row, stream_row
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed
from nemo_gym_video.tasks.clip_explorer.explorer import ExplorerEpisode, ExplorerLimits, score_exploration
from nemo_gym_video.tasks.episode_media import ClipFootage, StoreWriter
from nemo_gym_video.tasks.observation import Observation
from nemo_gym_video.tasks.sav_stream.stream import StreamEpisode, StreamRow, score_stream
from nemo_gym_video.tasks.task import Answer
from nemo_gym_video.tasks.tracking.scoring import score_tracks

MARGINS = {"caprl_mcqa": 0.3, "sav_pt_tracks": 0.2, "sav_box_tracks": 0.2, "sav_ref_tracks": 0.2}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRows:
    return demo_rows(tmp_path_factory.mktemp("demo"), seed=23, per_environment=8)


def reward(row: dict[str, Any], answer: str) -> float:
    if "expected_answer" in row:
        return score_boxed(answer, options=row["options"], expected_answer=row["expected_answer"]).reward
    return score_tracks(answer, row).reward


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_looking_pays(
    demo: DemoRows,
    environment: str,
    make_engine: Callable[..., Engine],
    ask: Callable[..., dict[str, Any]],
    chat_messages: Callable[..., list[dict[str, Any]]],
) -> None:
    engine = make_engine(demo.media_root)
    blind, rewards = BlindScores(), []
    rows = [json.loads(line) for line in Path(demo.files[environment]).read_text().splitlines()]
    for row in rows:
        blind.add(row)
        messages = chat_messages(row["responses_create_params"]["input"], demo.media_root)
        rewards.append(reward(row, ask(engine, messages)["choices"][0]["message"]["content"]))
    assert len(rows) == 8
    best = max(blind.to_json()["mean_reward"].values())
    assert mean(rewards) >= best + MARGINS[environment]


Episode = ExplorerEpisode | StreamEpisode


class Player:
    """Plays an episode against the engine as an agent would and checks that every prompt extends the last."""

    def __init__(
        self, engine: Engine, ask: Callable[..., Any], chat_messages: Callable[..., Any], root: Path
    ) -> None:
        self._engine, self._ask, self._chat_messages, self._root = engine, ask, chat_messages, root

    def play(self, row: dict[str, Any], episode: Episode, first: Observation) -> list[dict[str, Any]]:
        chat = self._said([*row["responses_create_params"]["input"], user(first)])
        output: list[dict[str, Any]] = []
        seen: list[int] = []
        while True:
            answer = self._ask(self._engine, chat)
            (choice,) = answer["choices"]
            assert answer["prompt_token_ids"][: len(seen)] == seen
            seen = answer["prompt_token_ids"] + choice["token_ids"]
            text = choice["message"]["content"]
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            output.append(item)
            observation = episode.step(Answer([item]))
            if observation.done:
                return output
            output.append(user(observation))
            chat += [{"role": "assistant", "content": text}, *self._said([user(observation)])]

    def _said(self, conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self._chat_messages(conversation, self._root)
        return messages


def user(observation: Observation) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(observation.parts)}


@pytest.fixture
def player(
    demo: DemoRows,
    make_engine: Callable[..., Engine],
    ask: Callable[..., Any],
    chat_messages: Callable[..., Any],
) -> Player:
    return Player(make_engine(demo.media_root), ask, chat_messages, demo.media_root)


def rows_of(demo: DemoRows, environment: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(demo.files[environment]).read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["manifest", "clip", "images"])
def test_a_long_clip_is_explored_before_the_answer(demo: DemoRows, player: Player, transport: Any) -> None:
    sources, limits = MediaSources(SourcePolicy((demo.media_root,))), MediaLimits()
    writer = StoreWriter(ContentStore(demo.media_root / "store"))
    rewards = []
    for row in rows_of(demo, "caprl_mcqa"):
        if not any(
            part["type"] == "input_video" for part in row["responses_create_params"]["input"][0]["content"]
        ):
            continue
        explored = explorer_row(row)
        footage = ClipFootage.open(sources, explored["video"], limits=limits, decoder=media_video)
        episode = ExplorerEpisode(footage, writer, ExplorerLimits(overview_frames=6, transport=transport))
        output = player.play(explored, episode, episode.begin())
        result = score_exploration(output, explored, usage=episode.usage())
        assert (episode.state["bad_requests"], episode.state["turns"] >= 2) == (0, True)
        rewards.append(result["reward"])
    assert mean(rewards) >= 0.25 + 0.3


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["sav_pt_tracks", "sav_box_tracks", "sav_ref_tracks"])
def test_a_stream_is_tracked_across_its_chunks(demo: DemoRows, player: Player, environment: str) -> None:
    blind, rewards = BlindScores(), []
    for row in rows_of(demo, environment):
        blind.add(row)
        streamed = stream_row(row, chunk=6)
        episode = StreamEpisode(StreamRow.from_row(streamed))
        result = score_stream(player.play(streamed, episode, episode.begin()), streamed)
        assert result.track.extras == 0
        assert result.track.missing == 0
        rewards.append(result.track.reward)
    assert mean(rewards) >= max(blind.to_json()["mean_reward"].values()) + 0.2
