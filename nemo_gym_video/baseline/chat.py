# SPDX-License-Identifier: Apache-2.0
"""Chat-completions messages: read from a request's JSON, rendered to token ids.

Rendering is append-only: the prompt of turn t+1 begins with the prompt and the generated ids of turn t, because an
assistant message renders to exactly the ids that were generated for it. The template is ChatML::

    <|im_start|>ROLE\\nCONTENT<|im_end|>\\n … <|im_start|>assistant\\n
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym_video.baseline.tokenizer import IM_END, IM_START, encode
from nemo_gym_video.errors import NemoGymVideoError, Where

_ROLES = ("system", "developer", "user", "assistant", "tool")


class RequestError(NemoGymVideoError):
    """The HTTP request cannot be served as asked; ``status`` is the HTTP code of the answer."""

    code = "request.invalid"

    def __init__(
        self,
        problem: str,
        *,
        status: int = 400,
        got: object = None,
        allowed: str | None = None,
        where: Where | str | None = None,
    ) -> None:
        """Build the message as every error of this package does."""
        super().__init__(problem, got=got, allowed=allowed, where=where)
        self.status = status


@dataclass(frozen=True, slots=True)
class ChatMedia:
    """One ``image_url`` or ``video_url`` part, not yet opened. ``where`` is its place in the request."""

    kind: Literal["image", "video"]
    url: str
    where: Where


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message: its role and its parts in order, text as ``str``.

    An assistant message's tool calls and reasoning are already folded into its text, as they were generated.
    """

    role: str
    parts: tuple[str | ChatMedia, ...]

    @property
    def text(self) -> str:
        """All text of the message, joined with nothing between."""
        return "".join(part for part in self.parts if isinstance(part, str))


def read_messages(messages: object) -> tuple[ChatMessage, ...]:
    """Read the ``messages`` of a request.

    Raises:
        RequestError: no list, an unknown role or part type, a part without text or URL.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a non-empty list", got=type(messages).__name__)
    return tuple(_read_message(message, Where(message=index)) for index, message in enumerate(messages))


def tool_call_text(name: str, arguments: str) -> str:
    """How one tool call is written in an assistant turn; ``arguments`` is JSON text, taken verbatim."""
    return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {arguments}}}</tool_call>'


def media_of(messages: Sequence[ChatMessage]) -> tuple[ChatMedia, ...]:
    """Every media part of a conversation, in prompt order."""
    return tuple(part for message in messages for part in message.parts if isinstance(part, ChatMedia))


def render(
    messages: Sequence[ChatMessage],
    media_token_ids: Sequence[Sequence[int]],
    *,
    tools: Sequence[Any] = (),
    add_generation_prompt: bool = True,
) -> list[int]:
    """Token ids of a conversation; ``media_token_ids`` holds the expansion of each media part in prompt order."""
    expansions = iter(media_token_ids)
    out: list[int] = []
    if tools:
        lines = "".join(f"\n{json.dumps(tool, sort_keys=True)}" for tool in tools)
        out += [IM_START, *encode(f"system\nTools, one JSON object a line:{lines}"), IM_END, *encode("\n")]
    for message in messages:
        out += [IM_START, *encode(f"{message.role}\n")]
        for part in message.parts:
            out += encode(part) if isinstance(part, str) else next(expansions)
        out += [IM_END, *encode("\n")]
    if add_generation_prompt:
        out += [IM_START, *encode("assistant\n")]
    return out


def _read_message(message: object, where: Where) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise RequestError("message is no object", got=type(message).__name__, where=where)
    role = message.get("role")
    if role not in _ROLES:
        raise RequestError("unknown role", got=role, allowed=", ".join(_ROLES), where=where)
    content = message.get("content")
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif not isinstance(content, list):
        raise RequestError("content is neither text nor a list of parts", got=type(content).__name__, where=where)
    parts = [_read_part(part, Where(message=where.message, part=index)) for index, part in enumerate(content)]
    if role == "assistant":
        if any(isinstance(part, ChatMedia) for part in parts):
            raise RequestError("an assistant message holds media", allowed="text", where=where)
        parts = [_reasoning_text(message), *parts, *_tool_call_texts(message, where)]
    return ChatMessage(role, tuple(part for part in parts if part != ""))


def _read_part(part: object, where: Where) -> str | ChatMedia:
    if not isinstance(part, Mapping):
        part = {}
    kind = part.get("type")
    if kind == "text":
        text = part.get("text")
        if isinstance(text, str):
            return text
        raise RequestError("text part holds no text", got=text, where=where)
    if kind in ("image_url", "video_url"):
        url = part.get(kind)
        if isinstance(url, Mapping):
            url = url.get("url")
        if isinstance(url, str) and url:
            return ChatMedia("image" if kind == "image_url" else "video", url, where)
        raise RequestError(f"{kind} part holds no URL", got=url, where=where)
    raise RequestError("unknown content part", got=kind, allowed="text, image_url, video_url", where=where)


def _reasoning_text(message: Mapping[str, Any]) -> str:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return f"<think>{reasoning}</think>" if isinstance(reasoning, str) and reasoning else ""


def _tool_call_texts(message: Mapping[str, Any], where: Where) -> list[str]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise RequestError("tool_calls must be a list", got=type(calls).__name__, where=where)
    texts = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise RequestError("tool call has no function name and arguments", got=call, where=where)
        texts.append(tool_call_text(name, arguments))
    return texts
