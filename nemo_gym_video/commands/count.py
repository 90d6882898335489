# SPDX-License-Identifier: Apache-2.0
"""``gym-video count``: the placeholder tokens that a model call's media will cost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import typer

from nemo_gym_video.commands.jsonl import answer_lines
from nemo_gym_video.commands.shared_options import Jsonl, LinesFile, Overrides
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.presets import ProcessorSettings, load_settings
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, RequestCount

_FIELDS = ("family", "items", "settings", "max_model_len", "text_tokens", "processor_cache", "pruning_rate")
_ITEM_FIELDS = ("kind", "size", "frames")
_IMAGE = re.compile(r"(\d{1,10})x(\d{1,10})(?::(\d{1,4}))?")
_VIDEO = re.compile(r"(\d{1,10})@(\d{1,10})x(\d{1,10})")


def count(
    lines: LinesFile = "-",
    jsonl: Jsonl = False,
    family: Annotated[str, typer.Option(help="A preset's name or a checkpoint folder.")] = "nemotron_omni",
    image: Annotated[list[str] | None, typer.Option(help="WIDTHxHEIGHT, or WIDTHxHEIGHT:COPIES.")] = None,
    video: Annotated[list[str] | None, typer.Option(help="FRAMES@WIDTHxHEIGHT.")] = None,
    settings: Overrides = "{}",
    # No min here: the request check below says what is wrong, on the command line as in a line of --jsonl.
    max_model_len: Annotated[int | None, typer.Option(help="The engine's context length.")] = None,
    text_tokens: Annotated[int, typer.Option(help="Text tokens the engine's processor counts.")] = 0,
    pruning_rate: Annotated[float, typer.Option(help="The engine's video pruning rate.")] = 0.0,
) -> None:
    """Predict the media tokens of one model call, from sizes and frame counts alone."""
    if jsonl:
        raise typer.Exit(answer_lines(lines, answer))
    items = [item for text in image or () for item in _parse_image(text)]
    items += [_parse_video(text) for text in video or ()]
    if not items:
        raise RowError("nothing to count", allowed="--image WIDTHxHEIGHT, --video FRAMES@WIDTHxHEIGHT, or --jsonl")
    chosen = _settings(family, _canonical(_overrides(settings)))
    request = CountRequest(
        items=tuple(items), max_model_len=max_model_len, text_tokens=text_tokens, pruning_rate=pruning_rate
    )
    _print(chosen, request, count_request(chosen, request))


def answer(body: dict[str, Any], where: Where) -> dict[str, Any]:
    """The answer to one request line; see ``docs/processors.md`` for both."""
    for name in body:
        if name not in _FIELDS:
            raise RowError(f"unknown field {name!r}", allowed=", ".join(_FIELDS), where=where)
    family = body.get("family")
    if not isinstance(family, str):
        raise RowError("family is no string", got=family, allowed="a preset or a checkpoint folder", where=where)
    chosen = _settings(family, _canonical(body.get("settings")))
    result = count_request(chosen, _request(body, where))
    shown: dict[str, Any] = {
        "items": [_item(item) for item in result.items],
        "total": result.total,
        "fingerprint": result.fingerprint,
    }
    if result.adjacent_regions_can_fuse:
        shown["adjacent_regions_can_fuse"] = True
    return shown


@lru_cache(maxsize=256)
def _settings(family: str, overrides: str) -> ProcessorSettings:
    return load_settings(family, overrides=json.loads(overrides))


def _canonical(overrides: object) -> str:
    return json.dumps({} if overrides is None else overrides)


def _overrides(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"--settings is not valid JSON ({error})", got=text) from error


def _request(body: Mapping[str, Any], where: Where) -> CountRequest:
    items = body.get("items")
    if not isinstance(items, list):
        raise RowError("items is no list", got=items, allowed="a list of images and videos", where=where)
    cache = body.get("processor_cache", False)
    if not isinstance(cache, bool):
        raise RowError("processor_cache is no boolean", got=cache, allowed="true or false", where=where)
    return CountRequest(
        items=tuple(_media_size(item, index, where) for index, item in enumerate(items)),
        max_model_len=body.get("max_model_len"),
        text_tokens=_or(body.get("text_tokens"), 0),
        processor_cache=cache,
        pruning_rate=_or(body.get("pruning_rate"), 0.0),
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _media_size(item: object, index: int, where: Where) -> MediaSize:
    place = Where(file=where.file, line=where.line, item=index)
    if not isinstance(item, Mapping):
        raise RowError("item is no object", got=item, allowed="an object", where=place)
    for name in item:
        if name not in _ITEM_FIELDS:
            raise RowError(f"unknown field {name!r} of an item", allowed=", ".join(_ITEM_FIELDS), where=place)
    size = item.get("size")
    if not isinstance(size, list) or len(size) != 2:
        raise RowError("item size does not fit", got=size, allowed="[width, height] in pixels", where=place)
    kind, frames = item.get("kind"), item.get("frames")
    if kind == "video" and frames is None:
        raise RowError("video names no frames", allowed="the number of sampled frames", where=place)
    # Sizes and kinds are checked by count_request, which names the item.
    return MediaSize(kind, size[0], size[1], 1 if frames is None else frames)  # type: ignore[arg-type]


def _item(item: ItemCount) -> dict[str, Any]:
    first = item.regions[0]
    shown: dict[str, Any] = {
        "run_lengths": list(item.run_lengths),
        "grid": None if first.grid is None else list(first.grid),
        "processed_size": None if first.processed_size is None else list(first.processed_size),
        "total": item.total,
    }
    if item.notes:
        shown["notes"] = list(item.notes)
    return shown


# For people


def _parse_image(text: str) -> list[MediaSize]:
    match = _IMAGE.fullmatch(text)
    if match is None:
        raise RowError("image does not fit", got=text, allowed="WIDTHxHEIGHT or WIDTHxHEIGHT:COPIES")
    width, height, copies = match.groups()
    return [MediaSize("image", int(width), int(height))] * int(copies or 1)


def _parse_video(text: str) -> MediaSize:
    match = _VIDEO.fullmatch(text)
    if match is None:
        raise RowError("video does not fit", got=text, allowed="FRAMES@WIDTHxHEIGHT")
    frames, width, height = (int(number) for number in match.groups())
    return MediaSize("video", width, height, frames)


def _print(settings: ProcessorSettings, request: CountRequest, result: RequestCount) -> None:
    from rich.console import Console  # start-up: --jsonl prints no table
    from rich.table import Table  # start-up: --jsonl prints no table

    table = Table("item", "size", "frames", "runs", "patch grid", "processed", "tokens", box=None, pad_edge=False)
    for size, item in zip(request.items, result.items, strict=True):
        shown = _item(item)
        table.add_row(
            size.kind,
            f"{size.width}x{size.height}",
            str(size.frames),
            _runs(item),
            "-" if shown["grid"] is None else "{1}x{0}".format(*shown["grid"]),
            "-" if shown["processed_size"] is None else "{}x{}".format(*shown["processed_size"]),
            str(item.total),
        )
    console = Console(highlight=False)
    console.print(table)
    notes = dict.fromkeys(note for item in result.items for note in item.notes)
    if result.adjacent_regions_can_fuse:
        notes["neighbouring items can fuse into one run"] = None
    for note in notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"total: {result.total} tokens ({settings.family}, widths before heights)", markup=False)


def _runs(item: ItemCount) -> str:
    lengths = item.run_lengths
    if len(set(lengths)) == 1:
        return f"{len(lengths)} x {lengths[0]}"
    return f"{len(lengths)} runs"
