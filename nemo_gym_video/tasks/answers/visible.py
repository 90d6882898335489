# SPDX-License-Identifier: Apache-2.0
"""From what a model put out to the text that counts as its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nemo_gym_video.tasks.answers.thinking import remove_thinking

MAX_ANSWER_CHARS = 1 << 22
"""Longest answer that is read, in characters, unless a caller sets another limit."""

Output = str | Sequence[Any]
"""A model's answer: its text, or the output items of a Responses object."""

VisibleReason = Literal["thinking_unclosed", "empty", "too_long"]


class VisibleText(NamedTuple):
    """The visible text, or the reason why there is none (``text`` is empty then)."""

    text: str
    reason: VisibleReason | None


def assistant_text(output: Output) -> str:
    """The text of all assistant messages: parts joined with nothing between, messages with a newline.

    Anything that is no assistant message, or no text, is passed over; a string is the text itself.
    """
    if isinstance(output, str):
        return output
    return "\n".join(
        _message_text(item)
        for item in output
        if isinstance(item, Mapping) and item.get("type") == "message" and item.get("role") == "assistant"
    )


def visible_text(output: Output, *, keep_thinking: bool = False, max_chars: int = MAX_ANSWER_CHARS) -> VisibleText:
    """What the model said after it had thought.

    ``keep_thinking`` leaves thinking where it is (the baseline rule set of tracking). Never raises.
    """
    text = output if isinstance(output, str) else assistant_text(output)
    if len(text) > max_chars:
        return VisibleText("", "too_long")
    if not keep_thinking:
        text, unclosed = remove_thinking(text)
        if unclosed:
            return VisibleText("", "thinking_unclosed")
    if not text or text.isspace():
        return VisibleText("", "empty")
    return VisibleText(text, None)


def _message_text(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = [
        part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "output_text"
    ]
    return "".join(text for text in texts if isinstance(text, str))
