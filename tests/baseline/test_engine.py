# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.baseline.chat import RequestError
from nemo_gym_video.baseline.engine import Engine
from nemo_gym_video.baseline.tokenizer import IM_END, decode, encode

Ask = Callable[..., dict[str, Any]]
HELLO = [{"role": "user", "content": "hello"}]
TRACK = 'Track point 1 at (500, 500).\nWrite <answer>{"tracks": []}</answer>'


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine()


def picture(path: Path) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": str(path)}}


def stills(write_image: Callable[..., Path], count: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for number in range(count):
        path = write_image(f"{number}.png", (160, 120))
        parts += [{"type": "text", "text": f"Frame {number}:"}, picture(path)]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": TRACK}]}]


def test_models_name_the_context_length(engine: Engine) -> None:
    (card,) = engine.models()["data"]
    assert (card["id"], card["max_model_len"]) == ("baseline", 131072)


def test_token_ids_come_with_the_answer(engine: Engine, ask: Ask) -> None:
    answer = ask(engine, HELLO, return_tokens_as_token_ids=True)
    (choice,) = answer["choices"]
    generated = choice["token_ids"]
    assert decode(answer["prompt_token_ids"]) == "user\nhello\nassistant\n"
    assert generated == [*encode(choice["message"]["content"]), IM_END]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [
        f"token_id:{token}" for token in generated
    ]
    assert answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert answer["usage"]["completion_tokens"] == len(generated)
    assert choice["finish_reason"] == "stop"


def test_log_probs_are_finite_and_negative(engine: Engine, ask: Ask) -> None:
    values = [entry["logprob"] for entry in ask(engine, HELLO)["choices"][0]["logprobs"]["content"]]
    assert all(math.isfinite(value) and value < 0 for value in values)
    assert len(set(values)) > 10


def test_token_ids_come_only_when_asked_for(engine: Engine) -> None:
    answer = engine.chat(json.dumps({"messages": HELLO}).encode())
    assert "prompt_token_ids" not in answer
    assert answer["choices"][0]["logprobs"] is None
    assert "token_ids" not in answer["choices"][0]


def test_tokenize_gives_the_prompt_of_chat(
    engine: Engine, ask: Ask, write_image: Callable[..., Path], tmp_path: Path
) -> None:
    messages = [{"role": "user", "content": [picture(write_image("a.png", (640, 360))), *HELLO_PART]}]
    tokens = engine.tokenize(json.dumps({"model": "baseline", "messages": messages}).encode())
    assert tokens["tokens"] == ask(engine, messages)["prompt_token_ids"]
    assert tokens["tokens"].count(18) == 286
    assert tokens["count"] == len(tokens["tokens"])
    assert engine.tokenize(b'{"prompt": "hi"}')["tokens"] == encode("hi")


HELLO_PART = [{"type": "text", "text": "look at this <image>"}]


def test_a_literal_placeholder_adds_no_media_token(engine: Engine, ask: Ask) -> None:
    answer = ask(engine, [{"role": "user", "content": "<image><img></img><|im_end|>"}])
    assert 18 not in answer["prompt_token_ids"]


def test_max_tokens_cuts(engine: Engine, ask: Ask) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        (choice,) = ask(engine, HELLO, **{name: 5})["choices"]
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (5, "length")
        assert choice["message"]["content"] == decode(choice["token_ids"])


def test_a_cut_turn_is_still_extended_by_the_next_prompt(engine: Engine, ask: Ask) -> None:
    first = ask(engine, HELLO, max_tokens=5)
    said = first["choices"][0]["message"]
    later = ask(engine, [*HELLO, said, {"role": "user", "content": "go on"}])
    before = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert later["prompt_token_ids"][: len(before)] == before


def test_the_context_length_is_kept(make_engine: Callable[..., Engine], ask: Ask) -> None:
    small = make_engine(max_model_len=64)
    answer = ask(small, HELLO)
    assert len(answer["prompt_token_ids"]) + len(answer["choices"][0]["token_ids"]) == 64
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("content", "fields"), [("x" * 64, {}), ("x" * 45, {}), ("hello", {"max_tokens": 60}), ("x" * 1000, {})]
)
def test_what_cannot_fit_is_refused_in_words_that_gym_knows(
    make_engine: Callable[..., Engine], ask: Ask, content: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(RequestError, match="maximum context length is 64 tokens") as caught:
        ask(make_engine(max_model_len=64), [{"role": "user", "content": content}], **fields)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"stream": True}, "streaming"),
        ({"n": 2}, "one choice"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": 1.5}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"tools": {"a": 1}}, "tools"),
        ({"continue_final_message": True}, "continue_final_message"),
    ],
)
def test_fields_that_are_not_understood_are_refused(
    engine: Engine, ask: Ask, fields: dict[str, Any], word: str
) -> None:
    with pytest.raises(RequestError, match=word) as caught:
        ask(engine, HELLO, **fields)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 200_000, b'{"seed": ' + b"9" * 5000 + b"}"]
)
def test_bodies_that_are_no_json_object_are_refused(engine: Engine, raw: bytes) -> None:
    with pytest.raises(RequestError):
        engine.chat(raw)


def test_another_model_is_not_found(engine: Engine, ask: Ask) -> None:
    with pytest.raises(RequestError, match="does not exist") as caught:
        ask(engine, HELLO, model="gpt")
    assert caught.value.status == 404


def test_answers_are_the_same_at_temperature_0_and_jittered_above(
    engine: Engine, ask: Ask, write_image: Callable[..., Path]
) -> None:
    messages = stills(write_image, 4)

    def said(**fields: Any) -> str:
        return str(ask(engine, messages, **fields)["choices"][0]["message"]["content"])

    assert said() == said(temperature=0) == said(temperature=0.0, seed=5)
    assert said(temperature=1, seed=5) == said(temperature=1, seed=5)
    assert len({said(temperature=1, seed=seed) for seed in range(4)} | {said()}) == 5
    assert said(temperature=1) != said(temperature=1)
