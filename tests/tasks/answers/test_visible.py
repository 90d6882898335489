# SPDX-License-Identifier: Apache-2.0
"""Visible text: thinking is removed, only the assistant's messages count."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.answers import envelope
from nemo_gym_video.tasks.answers.envelope import last_envelope
from nemo_gym_video.tasks.answers.thinking import remove_thinking
from nemo_gym_video.tasks.answers.visible import visible_text


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("no tags", "no tags"),
        ("a < b", "a < b"),
        ("x<think>y</think>z", "xz"),
        ("x<think>y</think>z<THINKING>w</Thinking>v", "xzv"),
        ("y</think>z", "z"),
        ("y</think>z</think>w", "w"),
        ("<think>a<think>b</think>c", "c"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<think>a</thinking>b", "b"),
        ("<thinking>a<think>b</think>c</thinking>d", "d"),
        ("<think>a</think><think>b</think>", ""),
        ("<think></think>", ""),
        ("<think >a", "<think >a"),
        ("<thinks>a", "<thinks>a"),
        ("<thin\u212a>a", "<thin\u212a>a"),
        ("<think>a <b>", None),
        ("a</think>b<think>c", None),
        ("a<thinking>b</think>c<thinking>", None),
        ("<think>a<thinking>b</thinking>c", None),
    ],
)
def test_thinking_is_removed(text: str, visible: str | None) -> None:
    found, unclosed = remove_thinking(text)
    assert unclosed == (visible is None)
    if visible is not None:
        assert found == visible


def _slow(text: str) -> str | None:
    """The specification's sentences, one after the other, with no thought of speed."""
    flags = re.IGNORECASE | re.DOTALL | re.ASCII
    text = re.sub(r"<(think|thinking)>.*?</\1>", "", text, flags=flags)
    text = re.split(r"</think(?:ing)?>", text, flags=flags)[-1]
    return None if re.search(r"<think(?:ing)?>", text, flags) else text


PIECES = st.sampled_from(["<think>", "</think>", "<thinking>", "</Thinking>", "<", ">", "a", "\u0130", "<THINK>"])


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_fast_and_slow_agree(text: str) -> None:
    found, unclosed = remove_thinking(text)
    assert (None if unclosed else found) == _slow(text)


def _message(*texts: Any, role: str = "assistant", kind: str = "message") -> dict[str, Any]:
    return {"type": kind, "role": role, "content": [{"type": "output_text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([_message("a", "b"), _message("c")], "ab\nc"),
        ([_message("a", role="user"), _message("b"), _message("c", role="system")], "b"),
        ([_message("a", kind="reasoning"), _message("b")], "b"),
        ([{"type": "message", "role": "assistant", "content": "plain"}], "plain"),
        ([{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}], ""),
        ([_message(None, 1, ["a"]), "text", None, {"type": "message"}], ""),
        ([{"type": "message", "role": "assistant", "content": 7}], ""),
        ([], ""),
        (["<answer>"], ""),
    ],
)
def test_only_the_assistants_text_counts(output: Any, text: str) -> None:
    found = visible_text(output)
    assert found.text == text
    assert found.reason == (None if text else "empty")


def test_a_thought_that_spans_two_messages_is_one_thought() -> None:
    assert visible_text([_message("<think>a"), _message("b</think>c")]).text == "c"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>x</answer>", "x"),
        ("<answer>x</answer> <answer> y\n</answer> z", " y\n"),
        ("<Answer>x</ANSWER>", "x"),
        ("<answer><answer>x</answer>", "x"),
        ("<answer>x</answer>y</answer>", "x</answer>y"),
        ("\u0130<answer>\u0130</answer>", "\u0130"),
        ("<answer>\ud800</answer>", "\ud800"),
        ("<answer></answer>", ""),
        ("</answer><answer>", None),
        ("<answer>x", None),
        ("x</answer>", None),
        ("<answer >x</answer>", None),
        ("", None),
    ],
)
def test_last_envelope(text: str, content: str | None) -> None:
    assert last_envelope(text) == content


TAGS = st.sampled_from(
    ["<answer>", "</answer>", "<Answer>", "</ANSWER>", "a", "<", "\u0130", "\u212a", "\u017f", "\ud800", "<answ"]
)


@settings(max_examples=400, deadline=None)
@given(text=st.lists(TAGS, max_size=9).map("".join), window=st.integers(1, 12))
def test_envelope_is_found_whatever_the_window(text: str, window: int) -> None:
    folded = "".join(character.lower() if character.isascii() else character for character in text)
    end = folded.rfind("</answer>")
    start = folded.rfind("<answer>", 0, end) if end >= 0 else -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "_WINDOW", window)
        assert last_envelope(text) == (None if start < 0 else text[start + len("<answer>") : end])
