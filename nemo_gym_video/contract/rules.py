# SPDX-License-Identifier: Apache-2.0
"""What a row's messages must not hold: refusals that need no media to be opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nemo_gym_video.contract.digest import MEDIA_TYPES, TEXT_TYPES
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import MediaGroup, as_messages, content_parts, group_media, iter_media_parts

DEFAULT_PLACEHOLDERS = (
    "<image>",
    "<img>",
    "</img>",
    "<video>",
    "<so_embedding>",
    "<IMG_CONTEXT>",
    "<image_soft_token>",
    "<start_of_image>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image|>",
    "<|video|>",
    "[IMG]",
)
"""Marker strings of common families, refused in text when no processor says which ones count."""

_ALLOWED_PARTS = (*TEXT_TYPES, *MEDIA_TYPES)


def checked_groups(
    conversation: str | Sequence[Any],
    *,
    placeholders: Sequence[str] = DEFAULT_PLACEHOLDERS,
    allow_mixed: bool = False,
    allow_many_sources: bool = False,
    where: Where | None = None,
) -> tuple[MediaGroup, ...]:
    """The row's logical images and videos in prompt order, after every check that needs no media.

    Args:
        conversation: the raw row's ``input``.
        placeholders: strings that must not stand in text, because a tokenizer makes media tokens of them.
        allow_mixed: stills may stand beside tagged frames.
        allow_many_sources: tagged frames of several sources may stand in one row.
        where: the row's place.

    Raises:
        RowError: names message and part.
    """
    _check_shape(conversation, where)
    check_text(conversation, placeholders, where=where)
    groups = group_media(iter_media_parts(conversation, where=where))
    tagged = [group for group in groups if group.tagged]
    if tagged:
        _check_sources(tagged, allow_many_sources, where)
        _check_company(groups, tagged, allow_mixed, where)
    for group in tagged:
        _check_frame_indices(group, where)
    return groups


def check_text(
    conversation: str | Sequence[Any], placeholders: Sequence[str], *, where: Where | None = None
) -> None:
    """Refuse a literal placeholder string in any text of the conversation, whoever says it."""
    for text, place in _texts(conversation, where):
        refuse_placeholders(text, placeholders, place)


def refuse_placeholders(text: str, placeholders: Sequence[str], place: Where) -> None:
    """Raise ``RowError`` when one of ``placeholders`` stands in ``text``."""
    for placeholder in placeholders:
        if placeholder in text:
            raise RowError(
                "text holds a literal media placeholder, which the model would take for media",
                code="row.placeholder_text",
                got=placeholder,
                allowed="reword or escape it",
                where=place,
            )


def _texts(conversation: str | Sequence[Any], where: Where | None) -> Iterator[tuple[str, Where]]:
    for message, item in enumerate(as_messages(conversation)):
        if not isinstance(item, Mapping):
            continue
        for name in ("content", "output", "arguments"):
            if isinstance(item.get(name), str):
                yield item[name], place_of(where, message)
        for part, entry in enumerate(content_parts(item)[1]):
            text = (
                entry.get("refusal" if entry.get("type") == "refusal" else "text")
                if isinstance(entry, Mapping)
                else None
            )
            if isinstance(text, str):
                yield text, place_of(where, message, part)


def _check_shape(conversation: str | Sequence[Any], where: Where | None) -> None:
    if not isinstance(conversation, str | list | tuple):
        raise RowError(
            "input is neither a string nor a list of messages", got=type(conversation).__name__, where=where
        )
    for message, item in enumerate(as_messages(conversation)):
        if not isinstance(item, Mapping):
            raise RowError("message is no object", got=item, where=place_of(where, message))
        for name in ("content", "output"):
            if not isinstance(item.get(name), str | list | None):
                got = type(item[name]).__name__
                raise RowError(
                    f"message {name} is neither text nor a list of parts", got=got, where=place_of(where, message)
                )
        for part, entry in enumerate(content_parts(item)[1]):
            place = place_of(where, message, part)
            if not isinstance(entry, Mapping):
                raise RowError("content part is no object", got=entry, where=place)
            kind = entry.get("type")
            if kind == "input_audio":
                raise RowError("audio parts are not supported", got=kind, where=place)
            if kind not in _ALLOWED_PARTS:
                raise RowError("content part has an unknown type", got=kind, allowed=", ".join(_ALLOWED_PARTS),
                               where=place)  # fmt: skip
            if kind in MEDIA_TYPES and item.get("type") == "function_call_output":
                raise RowError("media in a tool output does not reach the model", got=kind,
                               allowed="media in a user message", where=place)  # fmt: skip


def _check_sources(tagged: list[MediaGroup], allow_many: bool, where: Where | None) -> None:
    first = tagged[0].source
    seen: set[tuple[str, int]] = set()
    for group in tagged:
        place = place_of_group(where, group)
        # In another message the same source is another video: another turn brought it.
        if (group.source, group.parts[0].message) in seen:
            raise RowError("tagged frames of one source are not contiguous, so they are not one video",
                           got=group.source, where=place)  # fmt: skip
        if group.source != first and not allow_many:
            raise RowError("tagged frames of a second source in one row", got=[first, group.source],
                           allowed="one source a row", where=place)  # fmt: skip
        seen.add((group.source, group.parts[0].message))


def _check_company(
    groups: Sequence[MediaGroup], tagged: list[MediaGroup], allow_mixed: bool, where: Where | None
) -> None:
    for group in groups:
        if group.tagged:
            continue
        place = place_of_group(where, group)
        if group.kind == "video":
            raise RowError("a video part stands beside tagged frames", got=[group.source, tagged[0].source],
                           allowed="the video or its frames, not both", where=place)  # fmt: skip
        if not allow_mixed:
            raise RowError("a still image stands beside tagged frames", got=group.source,
                           allowed="frames of one video only (this environment does not mix them)",
                           where=place)  # fmt: skip


def _check_frame_indices(group: MediaGroup, where: Where | None) -> None:
    last: int | None = None
    first_given = group.parts[0].frame_index is not None
    for part in group.parts:
        place = place_of(where, part.message, part.part)
        if (part.frame_index is not None) != first_given:
            raise RowError("some tagged frames of a video have _video_frame_index and some have none", where=place)
        if part.frame_index is None:
            continue
        if part.frame_index < 0 or (last is not None and part.frame_index < last):
            raise RowError("tagged frames are out of order", got=part.frame_index,
                           allowed=f"_video_frame_index >= {last or 0}", where=place)  # fmt: skip
        last = part.frame_index


def place_of(where: Where | None, message: int, part: int | None = None) -> Where:
    """``where`` with message and part."""
    base = where or Where()
    return Where(file=base.file, line=base.line, row=base.row, turn=base.turn, message=message, part=part)


def place_of_group(where: Where | None, group: MediaGroup) -> Where:
    """The place of a group's first part."""
    return place_of(where, group.parts[0].message, group.parts[0].part)
