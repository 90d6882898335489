# SPDX-License-Identifier: Apache-2.0
"""What a row contract holds. The JSON form is in ``contract/wire.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.contract.digest import message_digest
from nemo_gym_video.errors import ContractError, Where
from nemo_gym_video.messages import MediaKind, MediaMode
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState, predict_items
from nemo_gym_video.processors.regions import MediaSize, Region

CONTRACT_FIELD = "media_contract"
"""Name of the row's top-level field that the contract rides in."""

CONTRACT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The processor and engine state that the regions were predicted for.

    ``fingerprint`` is that of the settings at the time of prediction; it differs from ``settings.fingerprint``
    when the family's rule has changed since. ``settings`` are None for a contract that was read from a row and
    whose family takes its settings from a folder: a row does not say what is opened.
    """

    family: str
    settings: ProcessorSettings | None
    fingerprint: str
    state: CallState = dataclasses.field(default_factory=CallState)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractItem:
    """One logical image or video of a row.

    Attributes:
        kind: what the item is; ``counted_as`` is what the processor sees of it (a video that is sent as single
            images is counted as ``image``).
        source: the reference a person would name; ``digest``, sha256 of the content bytes (of the frames' digests,
            for frames that travel one by one).
        size: displayed (width, height) in pixels.
        frames: frames that reach the processor, 1 for an image.
        frame_indices: their places in the source, from 0; ``total_frames`` and ``fps`` (frames a second) describe
            the source, ``timestamps`` are seconds. None where the row does not say.
        decoder: name and version of what measured a video.
        message, part: place of the item's first part in the row's input.
        turn: the model call that sees the item first, from 0; None is the first one with tokens for it.
        regions: predicted regions; None where no processor was configured.
    """

    kind: MediaKind
    source: str
    size: tuple[int, int] | None
    counted_as: MediaKind
    frames: int = 1
    digest: str | None = None
    frame_indices: tuple[int, ...] | None = None
    total_frames: int | None = None
    fps: float | None = None
    timestamps: tuple[float, ...] | None = None
    decoder: str | None = None
    message: int | None = None
    part: int | None = None
    turn: int | None = None
    regions: tuple[Region, ...] | None = None

    @property
    def total(self) -> int | None:
        """Predicted placeholder tokens of the item."""
        return None if self.regions is None else sum(region.total for region in self.regions)

    @property
    def media_sizes(self) -> tuple[MediaSize, ...]:
        """What the processor is given for the item: one video, one image, or an image a frame."""
        if self.size is None:
            raise ContractError("item has no size, so its tokens cannot be predicted", got=self.source)
        width, height = self.size
        if self.counted_as == "video":
            return (MediaSize("video", width, height, self.frames),)
        return (MediaSize("image", width, height),) * self.frames


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContract:
    """Media mode, items in prompt order and their predicted regions, bound to a row's messages by a digest.

    ``media_token_ids`` are the ids that stand for features in expanded token space; empty where only the
    checkpoint's tokenizer knows them.
    """

    mode: MediaMode
    items: tuple[ContractItem, ...]
    message_digest: str | None
    processor: Processor | None = None
    media_token_ids: tuple[int, ...] = ()

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the processor settings behind the counts."""
        return None if self.processor is None else self.processor.fingerprint

    @property
    def settings(self) -> ProcessorSettings | None:
        """The processor settings behind the counts."""
        return None if self.processor is None else self.processor.settings

    @property
    def state(self) -> CallState:
        """The engine state that the counts were predicted for."""
        return CallState() if self.processor is None else self.processor.state

    @property
    def total(self) -> int | None:
        """Predicted placeholder tokens of all items; None when one has no prediction."""
        totals = [item.total for item in self.items]
        return sum(total for total in totals if total is not None) if None not in totals else None

    def with_counts(self, settings: ProcessorSettings, state: CallState | None = None) -> RowContract:
        """The same contract with regions predicted by ``settings``; every item needs a size."""
        state = self.state if state is None else state
        turns = [item.turn or 0 for item in self.items]
        predicted = predict_items([item.media_sizes for item in self.items], turns, settings, state)
        items = tuple(
            dataclasses.replace(item, regions=regions) for item, regions in zip(self.items, predicted, strict=True)
        )
        return dataclasses.replace(
            self,
            items=items,
            processor=Processor(
                family=settings.family, settings=settings, fingerprint=settings.fingerprint, state=state
            ),
            media_token_ids=settings.media_token_ids or self.media_token_ids,
        )

    def completed(self) -> RowContract:
        """The contract with regions predicted for the items that have none, where settings and sizes are known."""
        open_items = [item for item in self.items if item.regions is None]
        if self.settings is None or not open_items or any(item.size is None for item in self.items):
            return self
        counted = self.with_counts(self.settings).items
        items = tuple(
            old if old.regions is not None else new for old, new in zip(self.items, counted, strict=True)
        )
        return dataclasses.replace(self, items=items)

    def sent_as(self, counted_as: MediaKind) -> RowContract:
        """The contract for tagged frames that are sent as one ``video`` or as single ``image`` parts.

        The mode stays; only what the processor sees of the frames changes, and with it the counts.
        """
        if self.mode != "tagged_frames" or all(item.counted_as == counted_as for item in self._videos()):
            return self
        items = tuple(
            dataclasses.replace(item, counted_as=counted_as, regions=None) if item.kind == "video" else item
            for item in self.items
        )
        changed = dataclasses.replace(self, items=items)
        return changed if self.settings is None else changed.with_counts(self.settings)

    def _videos(self) -> list[ContractItem]:
        return [item for item in self.items if item.kind == "video"]

    def with_items(self, items: Sequence[ContractItem]) -> RowContract:
        """The contract with ``items`` after its own (an environment's media), predicted if it can count.

        A row without media of its own takes the mode of what the environment brings first.
        """
        mode = self.mode
        if mode == "none" and items:
            mode = "images" if items[0].kind == "image" else "native_video"
        return dataclasses.replace(self, mode=mode, items=(*self.items, *items)).completed()

    def up_to(self, turn: int) -> RowContract:
        """The contract without the items that only model call ``turn`` or a later one would have seen."""
        items = tuple(item for item in self.items if (item.turn or 0) < turn)
        return dataclasses.replace(self, items=items, mode=self.mode if items else "none")

    def check_messages(self, conversation: str | Sequence[Any], *, where: Where | None = None) -> None:
        """Raise ``ContractError`` unless the contract was made for exactly these (raw) messages."""
        if self.message_digest is None:
            raise ContractError(
                "contract is not bound to messages (no message_digest)", code="contract.mismatch", where=where
            )
        found = message_digest(conversation, where=where)
        if found != self.message_digest:
            raise ContractError(
                "the row's messages were changed after its contract was made; prepare the row again or drop the "
                "contract", code="contract.mismatch",
                got=found, allowed=self.message_digest, where=where,
            )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The contract as a plain JSON object of version 1."""
        from nemo_gym_video.contract.wire import contract_to_json

        return contract_to_json(self)

    @classmethod
    def from_json(cls, value: object, *, where: Where | None = None) -> RowContract:
        """Read ``to_json``'s form, or a contract written by hand (docs/contract.md), strictly.

        Raises:
            ContractError: names the field that is wrong.
        """
        from nemo_gym_video.contract.wire import contract_from_json

        return contract_from_json(value, where=where)
