# SPDX-License-Identifier: Apache-2.0
"""The JSON form of a contract: fixed version, compact and exact, validated on the way in.

Compact: neighbouring equal regions are one object with ``repeat``; evenly stepped frame indices are
``{"start", "step", "count"}``; timestamps that equal index / fps are left out. Reading undoes all three exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from nemo_gym_video.contract.row_contract import CONTRACT_VERSION, ContractItem, Processor, RowContract
from nemo_gym_video.errors import ContractError, ProcessorSettingsError, Where
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.families.base import LARGEST, MAX_FRAMES, ProcessorSettings
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.presets import load_settings, preset_names
from nemo_gym_video.processors.regions import Region

_MODES = ("native_video", "tagged_frames", "images", "none")
_KINDS = ("image", "video")
# Families whose settings are a folder on one machine.
_FOLDER_FAMILIES = ("hf",)
_MAX_ITEMS = 10_000
_MAX_FRAMES_IN_ALL = 1_000_000

_PROCESSOR_FIELDS = ("family", "settings", "fingerprint", "max_model_len", "text_tokens", "processor_cache",
                     "pruning_rate")  # fmt: skip

Check = Callable[[object], Any]


def contract_to_json(contract: RowContract) -> dict[str, Any]:
    """``contract`` as a JSON object; fields without a value are left out."""
    body: dict[str, Any] = {"version": CONTRACT_VERSION, "mode": contract.mode}
    body["message_digest"] = contract.message_digest
    if contract.processor is not None:
        body["processor"] = _processor_to_json(contract.processor)
    body["media_token_ids"] = list(contract.media_token_ids)
    body["items"] = [_item_to_json(item) for item in contract.items]
    return {name: value for name, value in body.items() if value is not None}


def _processor_to_json(processor: Processor) -> dict[str, Any]:
    state = processor.state
    body: dict[str, Any] = {"family": processor.family}
    if processor.settings is not None and processor.family not in _FOLDER_FAMILIES:
        body["settings"] = processor.settings.values()
    body |= {"fingerprint": processor.fingerprint, "max_model_len": state.max_model_len}
    body |= {"text_tokens": state.text_tokens or None, "processor_cache": state.processor_cache or None}
    body |= {"pruning_rate": state.pruning_rate or None}
    return {name: value for name, value in body.items() if value is not None}


def _item_to_json(item: ContractItem) -> dict[str, Any]:
    indices, times = item.frame_indices, item.timestamps
    if times is not None and times == _times(indices, item.fps):
        times = None
    body: dict[str, Any] = {
        "kind": item.kind,
        "counted_as": item.counted_as if item.counted_as != item.kind else None,
        "source": item.source,
        "digest": item.digest,
        "size": None if item.size is None else list(item.size),
        "message": item.message,
        "part": item.part,
        "turn": item.turn,
        "frames": item.frames if item.kind == "video" else None,
        "frame_indices": None if indices is None else _progression(indices),
        "total_frames": item.total_frames,
        "fps": item.fps,
        "timestamps": None if times is None else list(times),
        "decoder": item.decoder,
        "regions": None if item.regions is None else _regions_to_json(item.regions),
    }
    return {name: value for name, value in body.items() if value is not None}


def _times(indices: tuple[int, ...] | None, fps: float | None) -> tuple[float, ...] | None:
    return None if indices is None or fps is None else tuple(index / fps for index in indices)


def _progression(indices: tuple[int, ...]) -> list[int] | dict[str, int]:
    if len(indices) > 2:
        start, step = indices[0], indices[1] - indices[0]
        if indices == tuple(start + step * place for place in range(len(indices))):
            return {"start": start, "step": step, "count": len(indices)}
    return list(indices)


def _regions_to_json(regions: tuple[Region, ...]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    place = 0
    for region in regions:
        first, last = region.frames
        if first != place:
            raise ContractError(
                "regions of an item do not follow one another", got=region.frames, allowed=str(place)
            )
        place = last
        body = {
            "run_lengths": list(region.run_lengths),
            "grid": None if region.grid is None else list(region.grid),
            "processed_size": None if region.processed_size is None else list(region.processed_size),
            "frames": last - first,
        }
        if written and all(written[-1][name] == value for name, value in body.items()):
            written[-1]["repeat"] += 1
        else:
            written.append({"repeat": 1} | body)
    return [
        {name: value for name, value in body.items() if value is not None and (name, value) != ("repeat", 1)}
        for body in written
    ]


# Reading


class _Fields:
    """The fields of one JSON object, taken one by one; what is left over at the end is an error."""

    def __init__(self, value: object, path: str, where: Where | None) -> None:
        self.path = path
        self.where = where
        if not isinstance(value, Mapping):
            raise self.wrong("", value, "an object")
        self.rest = dict(value)
        self.known: list[str] = []

    def wrong(self, name: str, got: object, allowed: str) -> ContractError:
        field = f"{self.path}.{name}".strip(".")
        shown = "null" if got is None else got
        return ContractError(f"contract field {field or '(all)'} does not fit", got=shown, allowed=allowed,
                             where=self.where)  # fmt: skip

    def take(self, name: str, check: Check, allowed: str, *, default: Any = None, required: bool = False) -> Any:
        """The checked value of ``name``; null counts as absent. ``check`` returns it or raises ValueError."""
        self.known.append(name)
        value = self.rest.pop(name, None)
        if value is None:
            if required:
                raise self.wrong(name, "nothing", allowed)
            return default
        try:
            return check(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.wrong(name, value, allowed) from error

    def finish(self) -> None:
        if self.rest:
            raise self.wrong(sorted(map(str, self.rest))[0], "an unknown field", ", ".join(self.known))


def contract_from_json(value: object, *, where: Where | None = None) -> RowContract:
    """Read a contract; ``ContractError`` names the first field that does not fit."""
    fields = _Fields(_lifted(value), "", where)
    fields.take("version", _one_of((CONTRACT_VERSION,)), str(CONTRACT_VERSION), default=CONTRACT_VERSION)
    items_json = fields.take("items", _list_of(dict, _MAX_ITEMS), "a list of objects", required=True)
    items = tuple(_item(item, f"items[{place}]", where) for place, item in enumerate(items_json))
    if sum(item.frames for item in items) > _MAX_FRAMES_IN_ALL:
        raise fields.wrong("items", "too many frames", f"{_MAX_FRAMES_IN_ALL} in all")
    mode = fields.take("mode", _one_of(_MODES), ", ".join(_MODES), default=_mode_of(items))
    digest = fields.take("message_digest", _sha256, "sha256:<64 hex digits>")
    processor_json = fields.take("processor", lambda found: found, "an object")
    processor = None if processor_json is None else _processor(processor_json, where)
    ids = fields.take("media_token_ids", _ints(low=0, high=LARGEST), "a list of token ids", default=())
    fields.finish()
    if not ids and processor is not None:
        ids = () if processor.settings is None else processor.settings.media_token_ids
    if (mode == "none") != (not items):
        raise fields.wrong("mode", mode, "none exactly when there are no items")
    return RowContract(mode=mode, items=items, message_digest=digest, processor=processor, media_token_ids=ids)


def _lifted(value: object) -> object:
    """By hand the processor's fields may stand at the top, as in a count request; move them where they belong."""
    if not isinstance(value, Mapping) or "processor" in value or "family" not in value:
        return value
    processor = {name: value[name] for name in _PROCESSOR_FIELDS if name in value}
    return {name: entry for name, entry in value.items() if name not in processor} | {"processor": processor}


def _mode_of(items: tuple[ContractItem, ...]) -> str:
    if any(item.kind == "video" for item in items):
        return "native_video"
    return "images" if items else "none"


def _processor(value: object, where: Where | None) -> Processor:
    fields = _Fields(value, "processor", where)
    family = fields.take("family", _text, "a family or preset name", required=True)
    values = fields.take("settings", _mapping, "an object of settings", default={})
    fingerprint = fields.take("fingerprint", _sha256, "sha256:<64 hex digits>")
    state = CallState(
        max_model_len=fields.take("max_model_len", _int(1), "a positive integer"),
        text_tokens=fields.take("text_tokens", _int(0), "an integer >= 0", default=0),
        processor_cache=fields.take("processor_cache", _flag, "true or false", default=False),
        pruning_rate=fields.take("pruning_rate", _number(0, 1), "0 <= rate < 1", default=0.0),
    )
    fields.finish()
    if family in _FOLDER_FAMILIES:
        if values or fingerprint is None:
            raise fields.wrong(
                "settings", values, f"none, and a fingerprint: {family} reads a folder, never a row's"
            )
        return Processor(family=family, settings=None, fingerprint=fingerprint, state=state)
    try:
        settings = _settings(family, values)
    except ProcessorSettingsError as error:
        raise ContractError(f"contract field processor.settings does not fit: {error}", where=where) from error
    if fingerprint is None:
        fingerprint = settings.fingerprint
    return Processor(family=settings.family, settings=settings, fingerprint=fingerprint, state=state)


def _settings(family: str, values: Mapping[str, Any]) -> ProcessorSettings:
    kind = FAMILIES.get(family)
    if kind is not None and set(values) == set(kind.keys()):
        return kind(**values)
    # A preset's name only: a folder that a row names is not read.
    names = [name for name in preset_names() if name not in _FOLDER_FAMILIES]
    if family not in names:
        raise ProcessorSettingsError(
            "unknown processor", code="processor.unknown", got=family, allowed=", ".join(names)
        )
    return load_settings(family, overrides=values)


def _item(value: object, path: str, where: Where | None) -> ContractItem:
    fields = _Fields(value, path, where)
    kind = fields.take("kind", _one_of(_KINDS), "image or video", required=True)
    lengths = fields.take("run_lengths", _ints(low=1, high=LARGEST), "a list of positive integers")
    by_runs = len(lengths or ()) or 1 if kind == "video" else 1
    count = fields.take("frames", _int(1, MAX_FRAMES), f"1 to {MAX_FRAMES}", default=by_runs)
    indices = fields.take("frame_indices", _indices, "rising frame numbers, or start, step and count")
    fps = fields.take("fps", _number(0, 1e6, open_low=True), "a positive number")
    times = fields.take("timestamps", _numbers, "a list of seconds", default=_times(indices, fps))
    if kind == "image" and count != 1:
        raise fields.wrong("frames", count, "1 for an image")
    for name, listed in (("frame_indices", indices), ("timestamps", times)):
        if listed is not None and len(listed) != count:
            raise fields.wrong(name, f"{len(listed)} entries", f"one a frame ({count})")
    regions_json = fields.take("regions", _list_of(dict, MAX_FRAMES), "a list of objects")
    if lengths is not None:
        if regions_json is not None:
            raise fields.wrong("run_lengths", "both", "either run_lengths or regions")
        regions_json = _by_runs(lengths, kind, count)
    item = ContractItem(
        kind=kind,
        counted_as=fields.take("counted_as", _one_of(_KINDS), "image or video", default=kind),
        source=fields.take("source", _text, "a string", default=""),
        digest=fields.take("digest", _sha256, "sha256:<64 hex digits>"),
        size=fields.take("size", _pair, "[width, height] in pixels"),
        message=fields.take("message", _int(0), "an index"),
        part=fields.take("part", _int(0), "an index"),
        turn=fields.take("turn", _int(0), "an index"),
        frames=count,
        frame_indices=indices,
        total_frames=fields.take("total_frames", _int(1), "a positive integer"),
        fps=fps,
        timestamps=times,
        decoder=fields.take("decoder", _text, "a string"),
        regions=None if regions_json is None else _regions(regions_json, path, count, where),
    )
    fields.finish()
    if kind == "image" and item.counted_as != "image":
        raise fields.wrong("counted_as", item.counted_as, "image for an image")
    return item


def _by_runs(lengths: tuple[int, ...], kind: str, frames: int) -> list[dict[str, Any]]:
    """Regions from bare run lengths: an image is one region, a video one a run, each over equally many frames."""
    if kind == "image" or len(lengths) == 1:
        return [{"run_lengths": list(lengths), "frames": frames}]
    step = -(-frames // len(lengths)) if lengths else 1
    return [
        {"run_lengths": [length], "frames": max(1, min(step, frames - place * step))}
        for place, length in enumerate(lengths)
    ]


def _regions(written: list[Any], path: str, frames: int, where: Where | None) -> tuple[Region, ...]:
    regions: list[Region] = []
    place = 0
    for number, value in enumerate(written):
        fields = _Fields(value, f"{path}.regions[{number}]", where)
        repeat = fields.take("repeat", _int(1, MAX_FRAMES), f"1 to {MAX_FRAMES}", default=1)
        lengths = fields.take(
            "run_lengths", _ints(low=1, high=LARGEST), "a list of positive integers", required=True
        )
        grid = fields.take("grid", _pair, "[height, width] in patches")
        size = fields.take("processed_size", _pair, "[width, height] in pixels")
        # Without a number, one single region covers the item and several cover a frame each.
        alone = len(written) == 1 and repeat == 1
        covered = fields.take("frames", _int(1, MAX_FRAMES), "frames covered", default=frames if alone else 1)
        fields.finish()
        if not lengths or place + covered * repeat > frames:
            raise fields.wrong(
                "", {"frames": covered, "repeat": repeat}, f"regions that cover the item's {frames} frames"
            )
        for _ in range(repeat):
            regions.append(
                Region(run_lengths=lengths, grid=grid, processed_size=size, frames=(place, place + covered))
            )
            place += covered
    if not regions or place != frames:
        raise ContractError(f"contract field {path}.regions does not fit", got=f"{place} frames covered",
                            allowed=f"the item's {frames} frames", where=where)  # fmt: skip
    return tuple(regions)


# Checks: return the value in its type, or raise ValueError


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError


def _int(low: int, high: int = LARGEST) -> Check:
    def check(value: object) -> int:
        _require(type(value) is int and low <= value <= high)
        return value  # type: ignore[return-value]

    return check


def _number(low: float, high: float, *, open_low: bool = False) -> Check:
    def check(value: object) -> float:
        _require(type(value) in (int, float))
        number = float(value)  # type: ignore[arg-type]
        _require((low < number if open_low else low <= number) and number < high)
        return number

    return check


def _numbers(value: object) -> tuple[float, ...]:
    _require(isinstance(value, list) and len(value) <= MAX_FRAMES)
    numbers = tuple(_number(-1e9, 1e9)(entry) for entry in value)  # type: ignore[attr-defined]
    _require(all(map(math.isfinite, numbers)))
    return numbers


def _ints(*, low: int, high: int) -> Check:
    def check(value: object) -> tuple[int, ...]:
        _require(isinstance(value, list) and len(value) <= MAX_FRAMES)
        return tuple(_int(low, high)(entry) for entry in value)  # type: ignore[attr-defined]

    return check


def _indices(value: object) -> tuple[int, ...]:
    if isinstance(value, Mapping):
        _require(set(value) == {"start", "step", "count"})
        start, step = _int(0)(value["start"]), _int(0)(value["step"])
        count = _int(1, MAX_FRAMES)(value["count"])
        return tuple(start + step * place for place in range(count))
    indices: tuple[int, ...] = _ints(low=0, high=LARGEST)(value)
    _require(all(left <= right for left, right in itertools.pairwise(indices)))
    return indices


def _pair(value: object) -> tuple[int, int]:
    _require(isinstance(value, list) and len(value) == 2)
    first, second = (_int(1)(entry) for entry in value)  # type: ignore[attr-defined]
    return first, second


def _one_of(allowed: tuple[Any, ...]) -> Check:
    def check(value: object) -> Any:
        _require(any(type(value) is type(entry) and value == entry for entry in allowed))
        return value

    return check


def _list_of(kind: type, limit: int) -> Check:
    def check(value: object) -> list[Any]:
        _require(isinstance(value, list) and len(value) <= limit)
        _require(all(isinstance(entry, kind) for entry in value))  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]

    return check


def _text(value: object) -> str:
    _require(isinstance(value, str))
    return value  # type: ignore[return-value]


def _flag(value: object) -> bool:
    _require(isinstance(value, bool))
    return value  # type: ignore[return-value]


def _mapping(value: object) -> Mapping[str, Any]:
    _require(isinstance(value, Mapping))
    return value  # type: ignore[return-value]


def _sha256(value: object) -> str:
    text = _text(value)
    head, _, tail = text.partition(":")
    _require(head == "sha256" and len(tail) == 64 and set(tail) <= set("0123456789abcdef"))
    return text
