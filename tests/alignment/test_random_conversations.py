# SPDX-License-Identifier: Apache-2.0
"""Random conversations that are written down token by token as they grow, so that the truth is known."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment import Occurrence, index_turns
from nemo_gym_video.commands.index import index_json
from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.messages import FrameManifest

MEDIA, START, END, TEXT, ANSWER = 18, 19, 20, 100, 200


@dataclass
class Truth:
    """One use of one media item, as the engine would have rendered it."""

    kind: str
    urls: tuple[str, ...]
    source: str
    frames: int | None
    lengths: list[int]
    turn: int | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)


class Conversation:
    """Grows a rollout item by item beside the tokens that an engine would have seen."""

    def __init__(self, seed: int, *, restarts: bool, native: bool) -> None:
        self.random = random.Random(seed)
        self.restarts = restarts
        self.native = native
        self.output: list[dict[str, Any]] = []
        self.truth: list[Truth] = []
        self.pending: list[Truth] = []
        self.tokens: list[int] = []
        self.segment = 0
        self.turns = 0

    def media_parts(self) -> list[dict[str, Any]]:
        """A content list of texts and media, and the truth about it in ``pending``."""
        parts: list[dict[str, Any]] = []
        for _ in range(self.random.randint(0, 3)):
            shape = self.random.choice(
                ["image", "image", "tagged", "manifest", "native" if self.native else "image"]
            )
            if self.random.random() < 0.5:
                parts.append({"type": "input_text", "text": "https://example.com/not-media.png"})
            parts.extend(getattr(self, f"_{shape}")())
        return parts

    def _image(self) -> list[dict[str, Any]]:
        url = self.random.choice(["a.png", "b.png", f"{self.random.random()}.png", "data:image/png;base64,AAAA"])
        self.pending.append(Truth("image", (url,), url, None, [self.random.randint(1, 5)]))
        return [{"type": "input_image", "image_url": url if self.random.random() < 0.5 else {"url": url}}]

    def _frames(self, count: int) -> list[int]:
        return [self.random.randint(1, 4)] * ((count + 1) // 2)

    def _tagged(self) -> list[dict[str, Any]]:
        source, count = f"{self.random.random()}.mp4", self.random.randint(1, 5)
        urls = tuple(f"{source}/{index}.png" for index in range(count))
        self.pending.append(Truth("video", urls, source, count, self._frames(count)))
        return [
            {"type": "input_image", "image_url": url, "_is_video_frame": True, "_video_source": source}
            for url in urls
        ]

    def _manifest(self) -> list[dict[str, Any]]:
        count = self.random.randint(1, 5)
        url = FrameManifest(frame_paths=tuple(f"/m/{index}.png" for index in range(count))).to_url()
        self.pending.append(Truth("video", (url,), url, count, self._frames(count)))
        return [{"type": "input_video", "video_url": url}]

    def _native(self) -> list[dict[str, Any]]:
        url = f"{self.random.random()}.mp4"
        self.pending.append(Truth("video", (url,), url, None, self._frames(self.random.randint(1, 6))))
        return [{"type": "input_video", "video": url}]

    def render(self, media: list[Truth], *, new: bool) -> None:
        for one in media:
            self.tokens.extend(TEXT + self.random.randint(0, 9) for _ in range(self.random.randint(0, 3)))
            for length in one.lengths:
                if new:
                    one.spans.append((len(self.tokens) + 1, len(self.tokens) + 1 + length))
                self.tokens.extend([START, *[MEDIA] * length, END])
        self.tokens.append(TEXT)

    def step(self) -> None:
        """One more item of the environment or of the model."""
        what = self.random.choice(["user", "tool", "text", "string", "silent", "turn", "turn", "turn"])
        if what == "user":
            self.output.append({"type": "message", "role": self.random.choice(["user", "system", "developer"]),
                                "content": self.media_parts()})  # fmt: skip
        elif what == "tool":
            self.output.append({"type": "function_call_output", "call_id": "c", "output": self.media_parts()})
        elif what == "text":
            self.output.append({"type": "message", "role": "user", "content": "file:///x.png"})
        elif what == "string":
            self.output.append({"type": "function_call_output", "call_id": "c", "output": "http://h/x.png"})
        elif what == "silent":
            self.output.append({"type": "reasoning", "summary": [], "generation_token_ids": []})
        else:
            self.turn()

    def turn(self) -> None:
        """A model call: new media are rendered behind everything before."""
        if self.restarts and self.turns and self.random.random() < 0.3:
            kept = [one for one in self.truth if self.random.random() < 0.5]
            self.tokens = [TEXT + 50 + self.turns]
            self.render(kept, new=False)
        self.render(self.pending, new=True)
        for one in self.pending:
            one.turn = self.turns
        self.truth.extend(self.pending)
        self.pending = []
        generated = [ANSWER + self.random.randint(0, 9) for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.2:
            generated.insert(self.random.randint(0, len(generated)), MEDIA)
            generated.append(ANSWER)
        shapes: list[dict[str, Any]] = [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
            {"type": "reasoning", "summary": []},
        ]
        self.output.append(self.random.choice(shapes) | {
            "prompt_token_ids": list(self.tokens), "generation_token_ids": generated,
            "generation_log_probs": [-1.0] * len(generated),
        })  # fmt: skip
        self.tokens.extend(generated)
        self.turns += 1


def grow(seed: int, *, restarts: bool, native: bool) -> tuple[dict[str, Any], list[Truth]]:
    talk = Conversation(seed, restarts=restarts, native=native)
    first = [{"role": "user", "content": talk.media_parts()}]
    decoy = [{"role": "user", "content": [{"type": "input_image", "image_url": "decoy.png"}]}]
    for _ in range(talk.random.randint(0, 12)):
        talk.step()
    rollout: dict[str, Any] = {"responses_create_params": {"input": first}, "response": {"output": talk.output}}
    place = talk.random.choice(["input", "agent_input", "seed_obs"])
    if place != "input":
        rollout["responses_create_params"]["input"] = decoy
        rollout["response"][place] = first
        if place == "seed_obs":
            rollout["response"]["agent_input"] = decoy
    parsed: dict[str, Any] = json.loads(json.dumps(rollout))
    return parsed, talk.truth + talk.pending


def described(one: Occurrence) -> tuple[str, tuple[str, ...], int | None]:
    return one.kind, one.ref.urls, one.frames


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_every_occurrence_is_on_its_turn_in_order(seed: int, restarts: bool, native: bool) -> None:
    """Nothing lost, nothing twice, order kept; without a processor spans are the truth or absent."""
    rollout, truth = grow(seed, restarts=restarts, native=native)
    for processor in (None, "nemotron_omni"):
        result = index_turns(rollout, media_token_ids=[MEDIA], processor=processor)
        for turn in result.turns:
            right = [one for one in truth if one.turn == turn.turn]
            assert [described(one) for one in turn.media] == [(one.kind, one.urls, one.frames) for one in right]
            unclear = 0
            for one, other in zip(turn.media, right, strict=True):
                unclear += not one.spans
                assert list(one.spans) in ([], other.spans)
                assert list(one.run_lengths) in ([], other.lengths)
            kinds = [finding.kind for finding in result.findings if finding.turn == turn.turn]
            assert (unclear > 0) == ("runs_ambiguous" in kinds)
            assert "run_unexpected" not in kinds
            assert "media_without_run" not in kinds
            generated = sum(run.length for run in turn.generated_runs)
            assert generated == list(turn.generation_token_ids).count(MEDIA)
        assert [described(one) for one in result.unclaimed] == [
            (one.kind, one.urls, one.frames) for one in truth if one.turn is None
        ]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_with_a_processor_nothing_is_ambiguous(seed: int, restarts: bool) -> None:
    rollout, truth = grow(seed, restarts=restarts, native=False)
    result = index_turns(rollout, media_token_ids=[MEDIA], processor="nemotron_omni")
    spans = [list(one.spans) for turn in result.turns for one in turn.media]
    assert spans == [one.spans for one in truth if one.turn is not None]
    assert {finding.kind for finding in result.findings} <= {"prefix_changed", "generated_media_token"}
    starts = [turn.segment for turn in result.turns]
    restarted = [finding.turn for finding in result.findings if finding.kind == "prefix_changed"]
    assert restarted == [turn for turn in range(1, len(starts)) if starts[turn] != starts[turn - 1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_one_lost_run_is_never_silent(seed: int) -> None:
    """The twin that must fail: take one run out of a prompt and something is said."""
    rollout, truth = grow(seed, restarts=False, native=False)
    seen = [one for one in truth if one.turn is not None]
    if not seen:
        return
    victim = random.Random(seed).choice(seen)
    start, end = victim.spans[0]
    turns = [item for item in rollout["response"]["output"] if item.get("generation_token_ids")]
    for item in turns[victim.turn :]:
        del item["prompt_token_ids"][start:end]
    result = index_turns(rollout, media_token_ids=[MEDIA], processor="nemotron_omni")
    kinds = {finding.kind for finding in result.findings if finding.turn == victim.turn}
    assert kinds & {"run_missing", "run_length_mismatch", "runs_ambiguous"}


JUNK: list[Any] = [None, True, 0, -1, 1.5, "", "x", "data:", [], [[]], {}, {"type": "input_image"}, [None],
                   2**70, "\ud800", [{"role": []}], {"url": 3}]  # fmt: skip


def _spoil(value: Any, rng: random.Random) -> Any:
    """Replace one random place of a JSON value by junk."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return value | {key: _spoil(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], _spoil(value[place], rng), *value[place + 1 :]]
    return rng.choice(JUNK)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_malformed_rollouts_are_refused_or_indexed(seed: int) -> None:
    rng = random.Random(seed)
    rollout, _ = grow(seed, restarts=True, native=True)
    rollout["media_contract"] = {"version": 1, "items": [{"kind": "image", "regions": [{"run_lengths": [1]}]}]}
    rollout["media_assets"] = {"m": {"media_id": "m", "source": "a.png", "source_part": {"image_url": "a.png"}}}
    for _ in range(rng.randint(1, 3)):
        rollout = _spoil(rollout, rng)
    try:
        result = index_turns(rollout, media_token_ids=rng.choice([None, [MEDIA]]))
    except NemoGymVideoError:
        return
    json.dumps(index_json(result))


@pytest.mark.parametrize(
    "rollout",
    [
        None,
        [],
        "rollout",
        {},
        {"response": None},
        {"response": []},
        {"response": {}},
        {"response": {"output": None}},
        {"response": {"output": "text"}},
        {"response": {"output": [None]}},
        {"response": {"output": []}, "responses_create_params": []},
        {"response": {"output": []}, "responses_create_params": {"input": 3}},
        {"response": {"output": [], "seed_obs": {"role": "user"}}},
        {"response": {"output": [{"generation_token_ids": "12"}]}},
        {"response": {"output": [{"generation_token_ids": {"0": 1}}]}},
        {"response": {"output": [{"generation_token_ids": [1], "prompt_token_ids": "1"}]}},
        {"response": {"output": [{"generation_token_ids": [1], "prompt_token_ids": [1, "2"]}]}},
        {"response": {"output": [{"generation_token_ids": [1.5], "prompt_token_ids": [1]}]}},
        {"response": {"output": [{"generation_token_ids": [[1]], "prompt_token_ids": [1]}]}},
        {"response": {"output": [{"generation_token_ids": [1, None], "prompt_token_ids": [1]}]}},
        {"response": {"output": [{"role": "user", "content": [{"type": "input_image"}]}]}},
        {"response": {"output": [{"role": "user", "content": [{"type": "input_image", "image_url": 3}]}]}},
        {"response": {"output": [{"role": "user", "content": [
            {"type": "input_video", "video_url": "a", "video": "b"}]}]}},
        {"response": {"output": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "a", "_is_video_frame": True}]}]}},
        {"response": {"output": [{"role": ["user"], "content": []}]}},
        {"response": {"output": []}, "media_contract": 3},
        {"response": {"output": []}, "media_contract": {"items": 3}},
        {"response": {"output": []}, "media_token_ids": "18"},
        {"response": {"output": []}, "media_token_ids": [True]},
    ],
)  # fmt: skip
def test_malformed_shapes_are_refused(rollout: Any) -> None:
    with pytest.raises(NemoGymVideoError):
        index_turns(rollout, media_token_ids=[MEDIA])
