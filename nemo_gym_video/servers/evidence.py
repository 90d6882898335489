# SPDX-License-Identifier: Apache-2.0
"""What a result says about its media, in nemo-gym's words: assets, and per model call their occurrences.

With a contract, the token ids of every call are aligned with it: where each item's placeholders stand, how many
there are and who says so, and every disagreement as a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nemo_gym_video.alignment.calls import (
    AlignedRegion,
    Alignment,
    ModelCall,
    align_calls,
    no_contract,
    uncounted_media,
)
from nemo_gym_video.contract import CONTRACT_FIELD, ContractItem, RowContract
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.messages import MediaMode, is_manifest_url
from nemo_gym_video.servers.budget import tokens_after
from nemo_gym_video.servers.emit import Emission, EmittedItem
from nemo_gym_video.servers.play import Call, PlayedEpisode


class MediaRecord:
    """The media of one rollout, turn by turn, and its contract."""

    def __init__(self, contract: RowContract | None, carried: Any) -> None:
        """``carried`` is the contract as the row had it, kept as it stands when nothing was added to it."""
        self.mode: MediaMode = "none"
        self.untrusted: str | None = None
        self._contract = contract
        counted = isinstance(carried, Mapping) and carried.get("processor") is not None
        self._carried = carried if counted or (contract is not None and contract.processor is None) else None
        self._turns: list[list[EmittedItem]] = []

    @property
    def _counted(self) -> bool:
        """Whether somebody says which token ids stand for media."""
        return self._contract is not None and bool(self._contract.media_token_ids)

    @property
    def has_contract(self) -> bool:
        """Whether the rollout's media are held to a contract."""
        return self._contract is not None

    def add(self, turn: int, emission: Emission, items: Sequence[ContractItem] = ()) -> None:
        """Media that model call ``turn`` sees first. ``items`` are theirs, where the contract lacks them."""
        while len(self._turns) <= turn:
            self._turns.append([])
        self._turns[turn].extend(emission.items)
        if self.mode == "none":
            self.mode = emission.mode
        if items and self._contract is not None:
            self._contract = self._contract.with_items(items)
            self._carried = None

    def tokens_after(
        self, episode: PlayedEpisode, observation: Sequence[Any], items: Sequence[ContractItem]
    ) -> int | None:
        """Tokens of the next prompt if ``observation``, whose media are ``items``, is sent; None when unknown."""
        if self._contract is None or not episode.calls:
            return None
        call = episode.calls[-1]
        before, after = self._contract.total, self._contract.with_items(items).total
        sent = [*episode.messages, *episode.output][: call.messages]
        return tokens_after(call, sent=sent, observation=observation, contract=self._contract,
                            media_tokens=(after or 0) - (before or 0))  # fmt: skip

    def report(self, episode: PlayedEpisode) -> dict[str, Any]:
        """The result's media fields; sets ``untrusted`` to the reason why it must not be trained on, if any."""
        self._drop_unseen(len(episode.calls))
        alignment = self._align(episode.calls)
        report: dict[str, Any] = {
            "media_mode": self.mode,
            "media_assets": {item.media_id: _asset(item) for items in self._turns for item in items},
            "media_occurrences": [
                occurrence
                for turn, call in enumerate(episode.calls)
                for occurrence in self._occurrences(turn, call, alignment)
            ],
            "model_call_metadata": [self._call(turn, call) for turn, call in enumerate(episode.calls)],
        }
        if self._contract is not None:
            report[CONTRACT_FIELD] = self._carried or self._contract.to_json()
            report["processor_fingerprint"] = self._contract.fingerprint
            report["media_token_ids"] = list(self._contract.media_token_ids)
        if alignment is not None:
            told = alignment.to_json()
            report["media_findings"] = told["findings"]
            if self._counted and all(call.prompt_token_ids for call in episode.calls):
                report["media_tokens"] = sum(sum(region.run_lengths) for region in alignment.regions)
            self.untrusted = alignment.reason
        return report

    def _drop_unseen(self, calls: int) -> None:
        """Forget media of a call that was never made: no prompt holds them (the model failed before)."""
        if self._contract is not None and len(self._turns) > calls:
            self._contract = self._contract.up_to(calls)
        del self._turns[calls:]

    def _align(self, calls: Sequence[Call]) -> Alignment | None:
        """What the judge says; None where a call has no token ids, so that there is nothing to compare."""
        if any(call.prompt_token_ids is None and not call.generation_token_ids for call in calls):
            return None
        given = [
            ModelCall(
                prompt_token_ids=call.prompt_token_ids or (),
                generation_token_ids=call.generation_token_ids or (),
                items=self._shown(turn),
            )
            for turn, call in enumerate(calls)
        ]
        try:
            basis = no_contract() if self._contract is None else replace(self._contract, items=())
            return align_calls(basis, given, ids_required=False)
        except AlignmentError as error:
            self.untrusted = str(error)
            return None

    def _shown(self, turn: int) -> Sequence[ContractItem]:
        """The media that call ``turn`` shows first: the contract's items, which stand in the order of emission."""
        first = sum(len(earlier) for earlier in self._turns[:turn])
        emitted = self._items(turn)
        if self._contract is None:
            return [uncounted_media(item.kind, item.source, frames=item.frames) for item in emitted]
        return self._contract.items[first : first + len(emitted)]

    def _call(self, turn: int, call: Call) -> dict[str, Any]:
        return {
            "turn_id": turn + 1,
            "model_call_id": call.model_call_id,
            "media_ids": [item.media_id for item in self._items(turn)],
            "processor_fingerprint": None if self._contract is None else self._contract.fingerprint,
        }

    def _items(self, turn: int) -> Sequence[EmittedItem]:
        return self._turns[turn] if turn < len(self._turns) else ()

    def _occurrences(self, turn: int, call: Call, alignment: Alignment | None) -> Iterator[dict[str, Any]]:
        """One entry for each item that the call was the first to see; the contract has them in the same order."""
        first = sum(len(earlier) for earlier in self._turns[:turn])
        seen: Counter[str] = Counter()
        for place, item in enumerate(self._items(turn)):
            yield {
                "media_id": item.media_id,
                "occurrence_ordinal": seen[item.media_id],
                "model_call_id": call.model_call_id,
                **self._evidence(first + place, item, alignment),
            }
            seen[item.media_id] += 1

    def _evidence(self, number: int, item: EmittedItem, alignment: Alignment | None) -> dict[str, Any]:
        """Where the item stands in its call's prompt, and what else is known of it."""
        sidecars: dict[str, Any] = {"kind": item.kind, "form": item.form, "frames": item.frames}
        if self._contract is not None and number < len(self._contract.items):
            sidecars.update(_known(self._contract.items[number]))
        regions = [region for region in alignment.regions if region.item == number] if alignment else []
        spans = [span for region in regions for span in region.spans]
        if regions:
            sidecars.update(_regions(regions))
        sizes = {region.processed_size for region in regions}
        return {
            "placeholder_span_or_position": [spans[0][0], spans[-1][1]] if spans else None,
            "processed_dimensions": list(size) if len(sizes) == 1 and (size := sizes.pop()) else None,
            "model_specific_sidecars": sidecars,
        }


def _known(item: ContractItem) -> Mapping[str, Any]:
    known = {
        "frames": item.frames,
        "size": item.size,
        "frame_indices": item.frame_indices,
        "fps": item.fps,
        "timestamps": item.timestamps,
        "decoder": item.decoder,
    }
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items() if value}


def _regions(regions: Sequence[AlignedRegion]) -> dict[str, Any]:
    """Run lengths and spans in token order; what all regions share once, else one value a region."""
    return {
        "run_lengths": [length for region in regions for length in region.run_lengths],
        "spans": [list(span) for region in regions for span in region.spans],
        "provenance": _shared([region.provenance for region in regions]),
        "status": _shared([region.status for region in regions]),
        "grid": _shared([list(region.grid) if region.grid else None for region in regions]),
    }


def _shared(values: list[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else values


def _asset(item: EmittedItem) -> dict[str, Any]:
    """An asset names its source and what was sent for it, but never holds a data URL."""
    return {
        "media_id": item.media_id,
        "content_digest": item.media_id,
        "kind": item.kind,
        "source": item.source,
        "source_part": _recorded_part(item),
        "form": item.form,
        "frames": item.frames,
    }


def _recorded_part(item: EmittedItem) -> dict[str, Any] | None:
    """The one part that carried the item, by which the asset is found again; None for several or a data URL."""
    part = item.parts[0]
    url = str(part.get("image_url") or part.get("video_url"))
    by_reference = url[:5].lower() != "data:" or is_manifest_url(url)
    return part if len(item.parts) == 1 and by_reference else None
