# SPDX-License-Identifier: Apache-2.0
"""What is known of a rollout's media before looking at tokens: contract, named processor, recorded evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nemo_gym_video.alignment.calls import no_contract, uncounted_media
from nemo_gym_video.alignment.findings import Finding
from nemo_gym_video.alignment.media_id import MediaRef, RecordedIds
from nemo_gym_video.alignment.occurrences import Occurrence, Origin, Place
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.contract import CONTRACT_FIELD, ContractItem, RowContract
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import FrameManifest, MediaGroup, MediaPart, is_manifest_url, short_url
from nemo_gym_video.processors.families.base import ProcessorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One media item of a turn as the messages have it; ``aligned`` is what its tokens are held to."""

    ref: MediaRef
    place: Place
    aligned: ContractItem
    frames: int | None = None
    frame_indices: tuple[int, ...] | None = None
    fps: float | None = None

    def occurrence(self, runs: Sequence[Run] | None) -> Occurrence:
        """The item with its place in the tokens; without runs it has the predicted lengths, if there are any."""
        regions = self.aligned.regions or ()
        predicted = tuple(length for region in regions for length in region.run_lengths)
        lengths = predicted if runs is None else tuple(run.length for run in runs)
        return Occurrence(
            kind=self.ref.kind,
            ref=self.ref,
            place=self.place,
            frames=self.frames,
            frame_indices=self.frame_indices,
            fps=self.fps,
            spans=tuple((run.start, run.end) for run in runs or ()),
            run_lengths=lengths,
            provenance=("processor" if lengths == predicted else "engine") if lengths else None,
        )


@dataclass(slots=True, kw_only=True)
class Predictions:
    """Hands out what the contract and the processor say, item by item, as the conversation is walked."""

    contract: RowContract | None
    settings: ProcessorSettings | None
    recorded: RecordedIds
    recorded_token_ids: tuple[int, ...] | None
    where: Where
    _next: int = 0
    _mismatch: Finding | None = field(default=None)

    @classmethod
    def of(
        cls,
        rollout: Mapping[str, Any],
        *,
        contract: RowContract | Mapping[str, Any] | None,
        processor: ProcessorSettings | str | None,
        where: Where,
    ) -> Predictions:
        """Collect what the caller gave, and what the rollout recorded where the caller gave nothing."""
        if contract is None:
            contract = rollout.get(CONTRACT_FIELD)
        if contract is not None and not isinstance(contract, RowContract):
            contract = RowContract.from_json(contract, where=where)
        contract = None if contract is None else contract.completed()
        if isinstance(processor, str):
            # start-up: most rollouts name no preset
            from nemo_gym_video.processors.presets import load_settings

            processor = load_settings(processor)
        response = rollout.get("response")
        nested = response.get("media_assets") if isinstance(response, Mapping) else None
        return cls(
            contract=contract,
            settings=processor,
            recorded=RecordedIds(nested, rollout.get("media_assets")),
            recorded_token_ids=_recorded_token_ids(rollout.get("media_token_ids"), where),
            where=where,
        )

    def media_token_ids(self, given: Collection[int] | None) -> tuple[int, ...] | None:
        """The placeholder ids to look for: as given, else the processor's, the contract's, those recorded."""
        if given:
            return tuple(given)
        if self.settings is not None and self.settings.media_token_ids:
            return self.settings.media_token_ids
        if self.contract is not None and self.contract.media_token_ids:
            return self.contract.media_token_ids
        return self.recorded_token_ids

    @property
    def basis(self) -> RowContract:
        """The contract without its items, which the walk hands out turn by turn."""
        return no_contract() if self.contract is None else replace(self.contract, items=())

    @property
    def items(self) -> tuple[ContractItem, ...]:
        """The contract's items; none without a contract."""
        return () if self.contract is None else self.contract.items

    def retag(self, parts: list[MediaPart]) -> list[MediaPart]:
        """Tags of the first prompt's frames, lost on the way through nemo-gym, as the contract has them."""
        if self.contract is None or self.contract.mode != "tagged_frames" or any(part.tagged for part in parts):
            return parts
        tagged: list[MediaPart] = []
        for item in self.items:  # the first prompt's come first
            rest = parts[len(tagged) :]
            if not rest:
                break
            as_frames = item.kind == "video" and rest[0].kind == "image"
            own = rest[: item.frames if as_frames else 1]
            kind = "image" if as_frames else item.kind
            if any(part.kind != kind for part in own) or (as_frames and len(own) < item.frames):
                return parts
            tagged += [replace(part, video_source=item.source) for part in own] if as_frames else own
        return tagged if len(tagged) == len(parts) else parts

    def items_of(self, groups: Sequence[tuple[Origin, MediaGroup]], turn: int | None) -> list[Item]:
        """The items of one turn (``None``: of no turn), each with what is known of it."""
        return [self._item(origin, group, self._take(group, turn)) for origin, group in groups]

    def plain_items(self, groups: Sequence[tuple[Origin, MediaGroup]]) -> list[Item]:
        """Items that the contract does not speak of."""
        return [self._item(origin, group, None) for origin, group in groups]

    def finding(self) -> Finding | None:
        """What is wrong between contract and messages, after the last item."""
        if self._mismatch is None and self._next < len(self.items):
            return Finding(
                kind="contract_mismatch", expected=len(self.items), found=self._next,
                message=f"the contract has {len(self.items)} items, the rollout brings {self._next} media",
            )  # fmt: skip
        return self._mismatch

    def _take(self, group: MediaGroup, turn: int | None) -> ContractItem | None:
        """The contract's next item, if it is of the group's kind; after a misfit nothing more is taken."""
        if self._mismatch is not None or self._next >= len(self.items):
            return None
        item = self.items[self._next]
        # A contract counts model calls, of which turns are those with generated tokens: never more of them.
        late = turn is not None and item.turn is not None and item.turn < turn
        if item.kind != group.kind or late:
            self._mismatch = Finding(
                kind="contract_mismatch", turn=turn, item=self._next,
                message=f"item {self._next} of the contract is a {item.kind}"
                + ("" if item.turn is None else f" of turn {item.turn}")
                + f", the rollout brings a {group.kind}; the contract is not used from here on",
            )  # fmt: skip
            return None
        self._next += 1
        return item

    def _item(self, origin: Origin, group: MediaGroup, known: ContractItem | None) -> Item:
        first = group.parts[0]
        frames = self._frames(group, known)
        media_id = None if known is None else known.digest
        if media_id is None:
            media_id = self.recorded.find(group.source, tagged=group.tagged)
        return Item(
            ref=MediaRef(group.kind, tuple(part.url for part in group.parts), source=group.source,
                         tagged=group.tagged, media_id=media_id),
            place=Place(origin=origin, message=first.message, part=first.part, role=first.role),
            aligned=known or uncounted_media(group.kind, short_url(group.source), frames=frames),
            frames=frames,
            frame_indices=None if known is None else known.frame_indices,
            fps=None if known is None else known.fps,
        )  # fmt: skip

    def _frames(self, group: MediaGroup, known: ContractItem | None) -> int | None:
        if group.kind == "image":
            return None
        if group.tagged:
            return len(group.parts)
        if is_manifest_url(group.parts[0].url):
            return len(FrameManifest.from_url(group.parts[0].url, where=self.where).frame_paths)
        return None if known is None else known.frames


def _recorded_token_ids(value: object, where: Where) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(type(number) is not int for number in value):
        place = Where(file=where.file, line=where.line, row=where.row, field="media_token_ids")
        raise RowError("recorded media token ids are no list of integers", got=value, where=place)
    return tuple(value) or None
