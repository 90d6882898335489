# SPDX-License-Identifier: Apache-2.0
"""Writes the JSON form of a contract: fixed version, compact and exact.

Compact: neighbouring equal regions are one object with ``repeat``; evenly stepped frame indices are
``{"start", "step", "count"}``; timestamps that equal index / fps are left out. ``contract/wire.py`` undoes all
three exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nemo_gym_video.contract.items import CONTRACT_VERSION, ContractItem, ContractProcessor
from nemo_gym_video.contract.wire import FOLDER_FAMILIES, index_times
from nemo_gym_video.errors import ContractError
from nemo_gym_video.processors.regions import Region


def contract_body(
    *,
    mode: str,
    items: Sequence[ContractItem],
    message_digest: str | None,
    processor: ContractProcessor | None,
    media_token_ids: Sequence[int],
) -> dict[str, Any]:
    """A contract as a JSON object; fields without a value are left out."""
    body: dict[str, Any] = {"version": CONTRACT_VERSION, "mode": mode, "message_digest": message_digest}
    if processor is not None:
        body["processor"] = _processor_to_json(processor)
    body["media_token_ids"] = list(media_token_ids)
    body["items"] = [_item_to_json(item) for item in items]
    return {name: value for name, value in body.items() if value is not None}


def _processor_to_json(processor: ContractProcessor) -> dict[str, Any]:
    state = processor.state
    body: dict[str, Any] = {"family": processor.family}
    if processor.settings is not None and processor.family not in FOLDER_FAMILIES:
        body["settings"] = processor.settings.values()
    body |= {"fingerprint": processor.fingerprint, "max_model_len": state.max_model_len}
    body |= {"text_tokens": state.text_tokens or None, "processor_cache": state.processor_cache or None}
    body |= {"pruning_rate": state.pruning_rate or None}
    return {name: value for name, value in body.items() if value is not None}


def _item_to_json(item: ContractItem) -> dict[str, Any]:
    indices, times = item.frame_indices, item.timestamps
    if times is not None and times == index_times(indices, item.fps):
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
