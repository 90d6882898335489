# SPDX-License-Identifier: Apache-2.0
"""What a row contract holds. The JSON form is in ``contract/wire.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.contract.digest import message_digest
from nemo_gym_video.contract.items import ContractItem, ContractProcessor
from nemo_gym_video.contract.wire import read_contract
from nemo_gym_video.contract.wire_output import contract_body
from nemo_gym_video.errors import ContractError, Where
from nemo_gym_video.messages import MediaKind, MediaMode
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState, predict_items

CONTRACT_FIELD = "media_contract"
"""Name of the row's top-level field that the contract rides in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContract:
    """Media mode, items in prompt order and their predicted regions, bound to a row's messages by a digest.

    ``media_token_ids`` are the ids that stand for features in expanded token space; empty where only the
    checkpoint's tokenizer knows them.

    >>> from nemo_gym_video import RowContract
    >>> contract = RowContract.from_json({"version": 1, "mode": "none", "media_token_ids": [18], "items": []})
    >>> contract.mode, contract.total, contract.media_token_ids
    ('none', 0, (18,))
    """

    mode: MediaMode
    items: tuple[ContractItem, ...]
    message_digest: str | None
    processor: ContractProcessor | None = None
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
            processor=ContractProcessor(
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
        return contract_body(
            mode=self.mode,
            items=self.items,
            message_digest=self.message_digest,
            processor=self.processor,
            media_token_ids=self.media_token_ids,
        )

    @classmethod
    def from_json(cls, value: object, *, where: Where | None = None) -> RowContract:
        """Read ``to_json``'s form, or a contract written by hand (docs/contract.md), strictly.

        Raises:
            ContractError: names the field that is wrong.
        """
        read = read_contract(value, where=where)
        return cls(
            mode=read.mode,
            items=read.items,
            message_digest=read.message_digest,
            processor=read.processor,
            media_token_ids=read.media_token_ids,
        )
