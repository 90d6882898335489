# SPDX-License-Identifier: Apache-2.0
"""Reads one rollout as Gym writes it: the first prompt's items, the output items, and their typed media.

Only the shape that the indexer needs is checked, and every message names the place. Nothing is copied: a data
URL stays the string that the rollout holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nemo_gym_video.alignment.occurrences import Origin, Place, Skipped
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import MediaGroup, MediaPart, content_parts, group_media, iter_media_parts

# Typed parts that hold media in a form that the Responses API of Gym does not know.
_FOREIGN_PARTS = frozenset(
    {"image", "image_url", "output_image", "video", "video_url", "input_audio", "audio_url", "input_file"}
)

FirstRecords = list[tuple[Origin, list[Any]]]


@dataclass(frozen=True, slots=True)
class RolloutItem:
    """One item of the conversation, in order, with the typed media it brings.

    ``prompt`` and ``generated`` hold token ids for a trainable item and are empty for any other.
    """

    origin: Origin
    index: int
    parts: tuple[MediaPart, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    generated: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)


def read_response(rollout: Mapping[str, Any], where: Where) -> Mapping[str, Any]:
    """The rollout's ``response`` object."""
    response = rollout.get("response")
    if not isinstance(response, Mapping):
        raise RowError("rollout has no response object", got=response, where=_field(where, "response"))
    return response


def first_prompt(rollout: Mapping[str, Any], response: Mapping[str, Any], where: Where) -> FirstRecords:
    """The records of the first prompt that the rollout has, in order of precedence; the first one counts.

    ``seed_obs`` goes before ``agent_input``, and that before the request's own input; an empty one does not
    count.
    """
    request = rollout.get("responses_create_params")
    if request is not None and not isinstance(request, Mapping):
        raise RowError("responses_create_params is no object", got=request,
                       where=_field(where, "responses_create_params"))  # fmt: skip
    found: FirstRecords = []
    origins: tuple[tuple[Origin, Mapping[str, Any], str], ...] = (
        ("seed_obs", response, "response.seed_obs"),
        ("agent_input", response, "response.agent_input"),
        ("input", request or {}, "responses_create_params.input"),
    )
    for origin, holder, name in origins:
        items = _item_list(holder.get(origin), _field(where, name))
        if items:
            found.append((origin, items))
    return found


def read_items(items: Sequence[Any], origin: Origin, where: Where) -> Iterator[RolloutItem]:
    """The items of one list, one by one. Only items of the output can be trainable."""
    silent = [_silent_reason(item, origin) for item in items]
    parts: dict[int, list[MediaPart]] = {}
    place = Where(file=where.file, line=where.line, row=where.row, field=origin)
    # Items that bring no media are blanked, so that indices stay and a model's own text is not validated.
    heard = [{} if reason else item for item, reason in zip(items, silent, strict=True)]
    for part in iter_media_parts(heard, where=place):
        parts.setdefault(part.message, []).append(part)
    for index, item in enumerate(items):
        place = Where(file=where.file, line=where.line, row=where.row, item=index, field=origin)
        if not isinstance(item, Mapping):
            raise RowError("conversation item is no object", got=item, where=place)
        if not isinstance(item.get("role", ""), str | None):
            raise RowError("role is no string", got=item["role"], where=place)
        generated = _token_ids(item, "generation_token_ids", place) if origin == "output" else []
        yield RolloutItem(
            origin,
            index,
            parts=tuple(parts.get(index, ())),
            skipped=tuple(_skipped(item, origin, index, silent[index])),
            generated=generated,
            prompt=_token_ids(item, "prompt_token_ids", place) if generated else [],
        )


def restore_tags(parts: list[MediaPart], raw: list[MediaPart]) -> list[MediaPart]:
    """``parts`` with the frame tags of ``raw``, when both list the same media in the same order.

    nemo-gym drops a part's tags when it parses a message, so a first prompt that went through an agent has
    lost them while the request in the rollout may still have them.
    """
    same = len(parts) == len(raw) and any(part.tagged for part in raw)
    if not same or any(part.tagged for part in parts):
        return parts
    if any(part.kind != other.kind or part.url != other.url for part, other in zip(parts, raw, strict=True)):
        return parts
    return [
        replace(part, video_source=other.video_source, frame_index=other.frame_index)
        for part, other in zip(parts, raw, strict=True)
    ]


def group_items(items: Sequence[RolloutItem]) -> list[tuple[Origin, MediaGroup]]:
    """The logical images and videos of some items, in order, each with the list it stands in."""
    return [(item.origin, group) for item in items for group in group_media(item.parts)]


def _item_list(value: object, where: Where) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise RowError("conversation is no list", got=value, allowed="a string or a list of items", where=where)
    return value


def output_items(response: Mapping[str, Any], where: Where) -> list[Any]:
    """The response's output items."""
    output = response.get("output")
    if not isinstance(output, list):
        raise RowError("response has no list of output items", got=output, where=_field(where, "response.output"))
    return output


def _token_ids(item: Mapping[str, Any], name: str, where: Where) -> list[int]:
    value = item.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowError(f"{name} is no list", got=value, allowed="a list of token ids", where=where)
    return value


def _silent_reason(item: object, origin: Origin) -> str | None:
    """Why media of the item never reach a model, or None if they do."""
    if not isinstance(item, Mapping):
        return "not an object"
    if item.get("role") == "assistant":
        return "media of an assistant message never reach the model"
    if origin == "output" and item.get("generation_token_ids"):
        return "media of a trained item are the model's own output"
    return None


def _skipped(item: Mapping[str, Any], origin: Origin, index: int, silent: str | None) -> list[Skipped]:
    role, parts = content_parts(item)
    found = []
    for number, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "input_text" or not isinstance(kind, str):
            continue
        reason = silent if kind in ("input_image", "input_video") else None
        if kind in _FOREIGN_PARTS:
            reason = f"{kind} is no media part of Gym's messages (input_image, input_video)"
        if reason is not None:
            place = Place(origin=origin, message=index, part=number, role=role)
            found.append(Skipped(place=place, reason=reason))
    return found


def _field(where: Where, name: str) -> Where:
    return Where(file=where.file, line=where.line, row=where.row, field=name)
