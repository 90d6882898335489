# SPDX-License-Identifier: Apache-2.0
"""Multi-turn rows made from single-turn ones: the question stays, its media become the environment's to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import group_media, iter_media_parts, text_part
from nemo_gym_video.prepare.row_parts import agent_ref, user_message
from nemo_gym_video.tasks.boxed.options import boxed_row
from nemo_gym_video.tasks.clip_explorer.requests import REQUEST_FORMS, TOOLS
from nemo_gym_video.tasks.tracking.prompts import read_frame_label
from nemo_gym_video.tasks.tracking.track_row import TrackRow

EXPLORER_AGENT = "clip_explorer_agent"
STREAM_AGENT = "sav_stream_agent"

_EXPLORE = (
    "The video is too long to show at once. You get an overview first, and may then ask for parts of it, one "
    "request a turn, each within request tags:",
    *REQUEST_FORMS,
    "Times are in seconds of the video; a crop's box is [x1, y1, x2, y2] on a grid from 0 to 1000. When you know "
    "the answer, give it without a request.",
)
_STREAM = (
    "The frames arrive in chunks, one a turn. After each chunk answer for the frames of that chunk only, in the "
    "form that is described; a frame can be answered in no other turn."
)
_DROPPED = ("responses_create_params", "agent_ref", "media_contract")


def explorer_row(
    row: Mapping[str, Any],
    *,
    tools: bool = False,
    limits: Mapping[str, Any] | None = None,
    where: Where | None = None,
) -> dict[str, Any]:
    """A ``clip_explorer`` row from a multiple-choice row with one native video or the frames of one source.

    ``tools`` offers the requests as function tools too; ``limits`` becomes the row's ``explorer`` block.

    Raises:
        RowError: the row asks no multiple-choice question, or is not about one video.
    """
    boxed_row(row, where=where)
    conversation = row["responses_create_params"]["input"]
    groups = group_media(iter_media_parts(conversation, where=where))
    if len(groups) != 1 or groups[0].kind != "video":
        raise RowError("row is not about one video", got=[group.kind for group in groups], where=where)
    params: dict[str, Any] = {"input": [user_message([text_part("\n".join([*_EXPLORE, _text(conversation)]))])]}
    if tools:
        params |= {"tools": [dict(tool) for tool in TOOLS], "parallel_tool_calls": True}
    return {
        **{key: value for key, value in row.items() if key not in _DROPPED},
        "responses_create_params": params,
        "agent_ref": agent_ref(EXPLORER_AGENT),
        "video": groups[0].source,
        **({"explorer": dict(limits)} if limits else {}),
    }


def stream_row(row: Mapping[str, Any], *, chunk: int, where: Where | None = None) -> dict[str, Any]:
    """A ``sav_stream`` row from a tracking row with labelled stills, ``chunk`` of them a turn.

    Raises:
        RowError: the row is malformed, or its media are not stills.
    """
    TrackRow.from_row(row, where)
    conversation = row["responses_create_params"]["input"]
    parts = list(iter_media_parts(conversation, where=where))
    if not parts or any(part.kind != "image" or part.tagged for part in parts):
        raise RowError("row does not show stills only", where=where)
    return {
        **{key: value for key, value in row.items() if key not in _DROPPED},
        "responses_create_params": {"input": [user_message([text_part(f"{_text(conversation)}\n{_STREAM}")])]},
        "agent_ref": agent_ref(STREAM_AGENT),
        "stream": {"frames": [part.url for part in parts], "chunk": chunk},
    }


def _text(conversation: Any) -> str:
    """The words of all messages, frame labels left out."""
    texts: list[str] = []
    for message in conversation:
        content = message.get("content", "")
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        texts += [text for text in parts if text and read_frame_label(text) is None]
    return "\n".join(texts)
