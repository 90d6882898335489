# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.baseline.chat import ChatMedia, RequestError, media_of, read_messages, render, tool_call_text
from nemo_gym_video.baseline.tokenizer import IM_END, decode, encode

TEXTS = st.text(max_size=30)


def test_the_template() -> None:
    messages = read_messages([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert decode(render(messages, []), skip_special_tokens=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_media_stand_where_their_parts_stand() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "one.png", "detail": "auto"}},
        {"type": "text", "text": "b"},
        {"type": "video_url", "video_url": "two.mp4"},
    ]
    messages = read_messages([{"role": "user", "content": content}])
    assert [(item.kind, item.url, item.where.part) for item in media_of(messages)] == [
        ("image", "one.png", 1),
        ("video", "two.mp4", 3),
    ]
    ids = render(messages, [[18], [19]], add_generation_prompt=False)
    assert ids == [10, *encode("user\na"), 18, *encode("b"), 19, IM_END, *encode("\n")]


def test_tools_come_first() -> None:
    text = decode(render(read_messages([{"role": "user", "content": "x"}]), [], tools=[{"type": "function"}]))
    assert text.startswith('system\nTools, one JSON object a line:\n{"type": "function"}\nuser\nx')


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        (None, "non-empty list"),
        ([], "non-empty list"),
        (["hi"], "no object"),
        ([{"role": "judge", "content": "x"}], "unknown role"),
        ([{"content": "x"}], "unknown role"),
        ([{"role": "user", "content": 3}], "neither text"),
        ([{"role": "user", "content": ["x"]}], "unknown content part"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "unknown content part"),
        ([{"role": "user", "content": [{"type": "text"}]}], "no text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]}], "no URL"),
        ([{"role": "user", "content": [{"type": "video_url", "video_url": 4}]}], "no URL"),
        ([{"role": "assistant", "content": [{"type": "image_url", "image_url": "a.png"}]}], "holds media"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], "tool call"),
        ([{"role": "assistant", "tool_calls": 5}], "tool_calls"),
    ],
)
def test_what_cannot_be_read_is_refused(messages: Any, word: str) -> None:
    with pytest.raises(RequestError, match=word) as caught:
        read_messages(messages)
    assert caught.value.status == 400


ASSISTANT = st.fixed_dictionaries(
    {"content": TEXTS},
    optional={
        "reasoning": TEXTS,
        "tool_calls": st.lists(
            st.builds(
                lambda name, args: {"type": "function", "function": {"name": name, "arguments": args}},
                TEXTS,
                TEXTS,
            ),
            max_size=2,
        ),
    },
)
USER = st.one_of(TEXTS, st.lists(st.just({"type": "image_url", "image_url": {"url": "x.png"}}), max_size=2))


def generated_text(message: dict[str, Any]) -> str:
    """What the model must have written for the client to hold this message."""
    reasoning = f"<think>{message['reasoning']}</think>" if message.get("reasoning") else ""
    calls = [
        tool_call_text(call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", [])
    ]
    return "".join([reasoning, message["content"], *calls])


@settings(max_examples=150)
@given(st.lists(st.tuples(USER, ASSISTANT), min_size=1, max_size=4))
def test_a_later_prompt_extends_the_earlier_prompt_and_what_it_generated(
    turns: list[tuple[Any, dict[str, Any]]],
) -> None:
    history: list[dict[str, Any]] = []
    seen: list[int] = []
    for said, answer in turns:
        history.append({"role": "user", "content": said})
        messages = read_messages(history)
        prompt = render(messages, [[19, 18, 20]] * len(media_of(messages)))
        assert prompt[: len(seen)] == seen
        assert len(prompt) > len(seen)
        seen = [*prompt, *encode(generated_text(answer)), IM_END]
        history.append({"role": "assistant", **answer})


def test_media_of_keeps_prompt_order() -> None:
    part = {"type": "image_url", "image_url": {"url": "a"}}
    other = {"type": "image_url", "image_url": {"url": "b"}}
    messages = read_messages([{"role": "user", "content": [part]}, {"role": "tool", "content": [other]}])
    assert [item.url for item in media_of(messages)] == ["a", "b"]
    assert isinstance(messages[0].parts[0], ChatMedia)
