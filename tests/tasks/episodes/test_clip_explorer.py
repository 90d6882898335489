# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.clip_explorer.explorer import (
    ExplorerCosts,
    ExplorerEpisode,
    ExplorerLimits,
    Pixels,
    clip_indices,
    crop,
    enlarge,
    score_exploration,
)
from nemo_gym_video.tasks.task import Answer


@dataclass
class Numbered:
    """A clip whose frames hold their own number as their value."""

    times: Sequence[float] = field(default_factory=lambda: [index / 10 for index in range(100)])
    end_s: float = 10.0
    reads: list[list[int]] = field(default_factory=list)

    def read(self, indices: Sequence[int]) -> Pixels:
        self.reads.append(list(indices))
        return np.stack([np.full((20, 40, 3), index, np.uint8) for index in indices])


@dataclass
class Recorder:
    """Keeps what was shown instead of writing it."""

    shown: list[tuple[str, list[int]]] = field(default_factory=list)

    def image(self, frame: Pixels) -> str:
        return self._keep("image", frame[None])

    def manifest(self, frames: Pixels) -> str:
        return self._keep("manifest", frames)

    def clip(self, frames: Pixels, times: Sequence[float]) -> str:
        assert len(times) == len(frames)
        return self._keep("clip", frames)

    def _keep(self, form: str, frames: Pixels) -> str:
        self.shown.append((form, [int(frame[0, 0, 0]) for frame in frames]))
        return f"{form}:{len(self.shown)}"


def episode(**limits: Any) -> ExplorerEpisode:
    return ExplorerEpisode(Numbered(), Recorder(), ExplorerLimits(**limits))


def says(text: str) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def asks(request: dict[str, Any]) -> list[dict[str, Any]]:
    return says(f"Let me see. <request>{json.dumps(request)}</request>")


def shown(one: ExplorerEpisode) -> list[tuple[str, list[int]]]:
    assert isinstance(one.writer, Recorder)
    return one.writer.shown


def words(observation: Any) -> str:
    return str(observation.parts[0]["text"])


def test_the_overview_spreads_over_the_whole_clip() -> None:
    one = episode(overview_frames=4)
    observation = one.begin()
    assert [part["type"] for part in observation.parts] == ["input_text", "input_video"]
    assert shown(one) == [("manifest", [0, 33, 66, 99])]
    assert "0.00, 3.30, 6.60, 9.90 s" in words(observation)


def test_a_clip_shorter_than_the_overview_is_shown_whole() -> None:
    one = ExplorerEpisode(Numbered(times=[0.0, 0.5], end_s=1.0), Recorder(), ExplorerLimits(overview_frames=8))
    one.begin()
    assert shown(one) == [("manifest", [0, 1])]


def test_a_clip_holds_the_frames_between_its_ends() -> None:
    one = episode()
    observation = one.step(Answer(asks({"clip": {"start": 2.0, "end": 2.5}})))
    assert not observation.done
    assert shown(one) == [("manifest", [20, 21, 22, 23, 24, 25])]
    assert "2.00, 2.10, 2.20, 2.30, 2.40, 2.50 s" in words(observation)


def test_a_rate_thins_the_clip_out() -> None:
    one = episode()
    one.step(Answer(asks({"clip": {"start": 2.0, "end": 4.0, "fps": 2}})))
    assert shown(one) == [("manifest", [20, 25, 30, 35, 40])]


@pytest.mark.parametrize(("transport", "form"), [("clip", "clip"), ("manifest", "manifest")])
def test_transport_of_clips(transport: str, form: str) -> None:
    one = episode(transport=transport)
    one.step(Answer(asks({"clip": {"start": 0, "end": 1}})))
    assert [kind for kind, _ in shown(one)] == [form]


def test_single_images_carry_their_times() -> None:
    one = episode(transport="images")
    observation = one.step(Answer(asks({"clip": {"start": 0, "end": 0.1}})))
    assert [part.get("text") for part in observation.parts[1::2]] == ["0.00 s:", "0.10 s:"]
    assert [part["type"] for part in observation.parts[2::2]] == ["input_image", "input_image"]


def test_frames_are_those_on_display() -> None:
    one = episode()
    one.step(Answer(asks({"frames": {"times": [0, 3.14, 9.99]}})))
    assert shown(one) == [("image", [0]), ("image", [31]), ("image", [99])]


def test_a_crop_shows_one_frame() -> None:
    one = episode()
    observation = one.step(Answer(asks({"crop": {"time": 5, "box": [0, 0, 500, 500]}})))
    assert shown(one) == [("image", [50])]
    assert "frame at 5.00 s" in words(observation)


@pytest.mark.parametrize(
    ("request_made", "advice"),
    [
        ({"clip": {"start": 11, "end": 12}}, "outside"),
        ({"clip": {"start": -1, "end": 2}}, "outside"),
        ({"clip": {"start": 3, "end": 2}}, "empty"),
        ({"clip": {"start": 0, "end": 10}}, "too long"),
        ({"clip": {"start": 0.01, "end": 0.09}}, "No frame"),
        ({"frames": {"times": [1, 99]}}, "outside"),
        ({"frames": {"times": [1] * 33}}, "Too many"),
        ({"crop": {"time": 50, "box": [0, 0, 1, 1]}}, "outside"),
        ({"zoom": {}}, "clip, frames or crop"),
    ],
)
def test_bad_requests_get_advice_and_cost_a_turn(request_made: dict[str, Any], advice: str) -> None:
    one = episode()
    observation = one.step(Answer(asks(request_made)))
    assert not observation.done
    assert len(observation.parts) == 1
    assert advice in words(observation)
    assert one.usage() == {"turns": 1, "frames_shown": 0, "bad_requests": 1}
    assert shown(one) == []


def test_neither_request_nor_answer_is_a_bad_request() -> None:
    observation = episode().step(Answer(says("I do not know yet.")))
    assert not observation.done
    assert "\\boxed" in words(observation)


def test_a_boxed_answer_ends_the_episode() -> None:
    observation = episode().step(Answer(says("It is \\boxed{B}.")))
    assert observation.done
    assert observation.reason == "answered"


def test_a_request_beside_a_box_is_a_request() -> None:
    observation = episode().step(Answer(says('\\boxed{B}? <request>{"frames": {"times": [1]}}</request>')))
    assert not observation.done


def test_the_turn_limit_ends_the_episode() -> None:
    one = episode(max_turns=2)
    assert "Answer now" in words(one.step(Answer(asks({"frames": {"times": [1]}}))))
    observation = one.step(Answer(asks({"frames": {"times": [1]}})))
    assert observation.done
    assert observation.reason == "turn_limit"


def call(name: str, arguments: object, call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": call_id}


def test_parallel_tool_calls_are_answered_in_order() -> None:
    one = episode()
    turn = [
        call("frames", {"times": [4]}, "first"),
        call("clip", {"start": 5, "end": 4}, "second"),
        call("clip", {"start": 1, "end": 1.1, "fps": 10}, "third"),
    ]
    observation = one.step(Answer(turn))
    assert [call_id for call_id, _ in observation.tool_outputs] == ["first", "second", "third"]
    assert "empty" in observation.tool_outputs[1][1]
    assert shown(one) == [("image", [40]), ("manifest", [10, 11])]
    assert [part["type"] for part in observation.parts if part["type"] != "input_text"] == [
        "input_image",
        "input_video",
    ]
    assert not any(text.startswith(("http", "file", "data:")) for _, text in observation.tool_outputs)


@pytest.mark.parametrize(
    "values",
    [
        {"max_turns": 0},
        {"max_turns": True},
        {"max_frames": "many"},
        {"overview": 3},
        {"transport": "fax"},
    ],
)
def test_bad_limits_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        ExplorerLimits.from_json(values)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(0.001, 0.5), min_size=1, max_size=60),
    st.floats(0, 10),
    st.floats(0, 10),
    st.one_of(st.none(), st.floats(0.1, 60)),
)
def test_clip_indices_against_the_definition(
    steps: list[float], start: float, span: float, fps: float | None
) -> None:
    times = [float(value) for value in np.cumsum(steps)]
    end = start + span
    inside = [index for index, time in enumerate(times) if start - 1e-6 <= time <= end + 1e-6]
    chosen = clip_indices(times, start, end, fps=fps)
    if fps is None:
        assert chosen == inside
        return
    assert set(chosen) <= set(inside)
    assert chosen == sorted(set(chosen))
    if inside:
        assert chosen[0] == inside[0]
    # Of the frames in each step of 1/fps at most one is taken, and a step that holds a frame is not left out.
    step_of = {index: int((times[index] - start) * fps + 1e-6) for index in inside}
    assert len({step_of[index] for index in chosen}) == len(chosen)
    assert {step_of[index] for index in chosen} == set(step_of.values())


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 1000, 1000), (20, 40)),
        ((0, 0, 500, 500), (10, 20)),
        ((999, 999, 1000, 1000), (1, 1)),
        ((0, 0, 1, 1), (1, 1)),
    ],
)
def test_crop_size(box: tuple[float, float, float, float], size: tuple[int, int]) -> None:
    assert crop(np.zeros((20, 40, 3), np.uint8), box).shape[:2] == size


def test_enlarge_keeps_the_ratio_and_never_shrinks() -> None:
    assert enlarge(np.zeros((10, 20, 3), np.uint8), side=100).shape == (50, 100, 3)
    assert enlarge(np.zeros((300, 20, 3), np.uint8), side=100).shape == (300, 20, 3)


ROW = {"options": [{"A": "1 s"}, {"B": "2 s"}], "expected_answer": "B"}
USAGE = {"turns": 3, "frames_shown": 20, "bad_requests": 0}


def output(*turns: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for number, text in enumerate(turns):
        if number:
            items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]})
        items += says(text)
    return items


def test_the_last_turn_is_scored() -> None:
    result = score_exploration(output("\\boxed{A}", "\\boxed{B}"), ROW, usage=USAGE)
    assert result["reward"] == 1.0
    assert score_exploration(output("\\boxed{B}", "no answer"), ROW, usage=USAGE)["reward"] == 0.0


def test_thinking_cut_off_in_an_earlier_turn_does_not_spoil_the_answer() -> None:
    assert score_exploration(output("<think>cut", "\\boxed{B}"), ROW, usage=USAGE)["reward"] == 1.0


def test_costs_lower_a_right_answer_and_never_below_zero() -> None:
    costs = ExplorerCosts(turn=0.05, frame=0.01)
    right = score_exploration(output("\\boxed{B}"), ROW, usage=USAGE, costs=costs)
    assert right["reward"] == pytest.approx(1 - 2 * 0.05 - 20 * 0.01)
    assert sum(right["reward_components"].values()) == pytest.approx(right["reward"], abs=1e-9)
    wrong = score_exploration(output("\\boxed{A}"), ROW, usage=USAGE, costs=costs)
    assert wrong["reward"] == 0.0
    dear = score_exploration(output("\\boxed{B}"), ROW, usage=USAGE, costs=ExplorerCosts(frame=1))
    assert dear["reward"] == 0.0


def test_a_bad_row_is_masked() -> None:
    assert score_exploration(output("\\boxed{B}"), {"options": []}, usage={})["mask_sample"]


def test_an_episode_made_anew_goes_on_from_its_state() -> None:
    first = episode(max_turns=4)
    first.begin()
    first.step(Answer(asks({"clip": {"start": 2.0, "end": 2.5}})))
    second = episode(max_turns=4)
    second.state = json.loads(json.dumps(first.state))
    answer = Answer(asks({"frames": {"times": [1.0, 3.0]}}))
    assert second.step(answer).to_json()["info"] == first.step(answer).to_json()["info"]
    assert second.state == first.state


def test_an_episode_without_the_state_counts_from_the_beginning() -> None:
    first = episode()
    first.begin()
    second = episode()
    answer = Answer(asks({"clip": {"start": 2.0, "end": 2.5}}))
    assert second.step(answer).to_json()["info"] != first.step(answer).to_json()["info"]
