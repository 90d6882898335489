# SPDX-License-Identifier: Apache-2.0
"""Binds a contract to the messages it was made for: a digest over what the raw row says.

The digest covers, in order, every item's role and every part's type, text, media URL and frame tags. It does not
cover how a thing is spelt where Gym accepts several spellings: a bare string for one user message or for one text
part, ``image_url`` as string or object. Keys that nemo-gym adds or that carry no media (``detail``, ``status``,
``id``, annotations) do not count. It is taken over the *raw* row: after nemo-gym has parsed a body the frame tags
are gone and the digest differs, so check a contract before parsing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import as_messages, media_url

TEXT_TYPES = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")
MEDIA_TYPES = ("input_image", "input_video")
_TAGS = ("_is_video_frame", "_video_source", "_video_frame_index")


def message_digest(conversation: str | Sequence[Any], *, where: Where | None = None) -> str:
    """``sha256:<hex>`` of a row's ``input``.

    Raises:
        RowError: neither a string nor a list of messages, a media part without one URL, a part that is no JSON.
    """
    if not isinstance(conversation, str | list | tuple):
        raise RowError("input is neither a string nor a list of messages", got=type(conversation).__name__,
                       where=where)  # fmt: skip
    canonical = [_item(item, where) for item in as_messages(conversation)]
    try:
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"messages are no plain JSON ({error})", where=where) from error
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _item(item: object, where: Where | None) -> object:
    if not isinstance(item, Mapping):
        return item
    kind = item.get("type", "message")
    if kind == "function_call":
        return [kind, item.get("call_id"), item.get("name"), item.get("arguments")]
    if kind == "function_call_output":
        return [kind, item.get("call_id"), _content(item.get("output"), where)]
    if kind == "reasoning":
        return [kind, _content(item.get("content"), where), _content(item.get("summary"), where)]
    return [kind, item.get("role"), _content(item.get("content"), where)]


def _content(content: object, where: Where | None) -> object:
    if isinstance(content, str):
        return [["text", content]]
    return [_part(part, where) for part in content] if isinstance(content, list) else content


def _part(part: object, where: Where | None) -> object:
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if kind in MEDIA_TYPES:
        tags = {tag: part[tag] for tag in _TAGS if part.get(tag) not in (None, False)}
        return [kind, media_url(part, where=where), tags]
    if kind in TEXT_TYPES:
        return ["text", part.get("refusal") if kind == "refusal" else part.get("text")]
    return dict(part)
