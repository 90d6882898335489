# SPDX-License-Identifier: Apache-2.0
"""Records every model call of a rollout once, as what it adds to its parent call: tokens and media.

Two token spaces. *Compact* has one placeholder a media item: what a chat template renders, and what a request
to the engine must be in. *Expanded* has one placeholder a feature: what the engine made of it, and what is trained
on. A template renders an earlier answer again and may tokenise it differently from what the model generated;
``splice`` puts the recorded compact chain in its place. Doing that in expanded space would make the engine expand
twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nemo_gym_video.alignment.runs import find_runs
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.messages import MediaKind

TokenIds = tuple[int, ...]


class Rows(Protocol):
    """A call's media columns, such as an array of patches: only their number of rows is looked at."""

    def __len__(self) -> int:
        """Rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedMedia:
    """One media item as the processor saw it.

    ``tokens`` are its placeholders in expanded space, ``rows`` what it takes in the media columns (patches),
    ``grid`` (frames, height, width) in patches.
    """

    media_id: str
    kind: MediaKind
    tokens: int
    rows: int
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """What one call adds to its parent's chain.

    ``compact`` and ``expanded`` are the new prompt tokens of either space followed by ``generated``. ``media`` are
    the items new to the call, ``media_before`` how many the chain had. ``expanded_length`` counts the whole chain,
    this call included. ``geometry_digest`` binds ``media`` to ``expanded``.
    """

    call_id: str
    parent_id: str | None
    compact: TokenIds
    expanded: TokenIds
    generated: TokenIds
    media: tuple[CapturedMedia, ...]
    media_before: int
    expanded_length: int
    geometry_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembled[RowsT]:
    """A whole chain: tokens of both spaces, positions in ``expanded`` that were generated, media in order.

    ``columns`` are the media columns of the calls that have some, in chain order.
    """

    expanded: TokenIds
    compact: TokenIds
    generated: tuple[int, ...]
    media: tuple[CapturedMedia, ...]
    columns: tuple[RowsT, ...]


@dataclass(slots=True)
class CallLedger:
    """The calls of one rollout, by id. ``media_token_ids`` are the placeholders of either space."""

    media_token_ids: tuple[int, ...]
    calls: dict[str, CapturedCall] = field(default_factory=dict)

    def chain(self, call_id: str | None) -> tuple[CapturedCall, ...]:
        """The calls from the first to ``call_id``; of ``None``, none.

        Raises:
            AlignmentError: no such call.
        """
        links = []
        while call_id is not None:
            call = self.calls.get(call_id)
            if call is None:
                raise AlignmentError("no such call in the ledger", got=call_id, allowed=", ".join(self.calls))
            links.append(call)
            call_id = call.parent_id
        return tuple(reversed(links))

    def splice(self, parent_id: str, rendered: Sequence[int], previous: Sequence[int]) -> TokenIds:
        """The compact prompt to send: the recorded chain, then what ``rendered`` has after ``previous``.

        ``rendered`` is the template's compact prompt, ``previous`` the part of it that renders the conversation up
        to and including the parent's answer.

        Raises:
            AlignmentError: ``previous`` does not begin ``rendered``, or holds another number of media than the
                chain.
        """
        links = self.chain(parent_id)
        if tuple(rendered[: len(previous)]) != tuple(previous):
            raise AlignmentError("the previous part does not begin the rendered prompt", got=list(previous[:20]))
        before = sum(len(link.media) for link in links)
        held = self._placeholders(previous) - sum(self._placeholders(link.generated) for link in links)
        if held != before:
            raise AlignmentError(
                "the rendered conversation holds another number of media than the recorded chain; is it in "
                "expanded space?",
                got=held,
                allowed=str(before),
            )
        return (*_joined(link.compact for link in links), *rendered[len(previous) :])

    def record(
        self,
        call_id: str,
        *,
        parent_id: str | None,
        compact_prompt: Sequence[int],
        expanded_prompt: Sequence[int],
        generated: Sequence[int],
        media: Sequence[CapturedMedia],
    ) -> CapturedCall:
        """Record a call from its whole prompts and all media of its conversation; keep only what is new.

        Raises:
            AlignmentError: the call exists, a prompt does not extend the parent's chain, or new media and new
                placeholders differ in number.
        """
        if call_id in self.calls:
            raise AlignmentError("call is already recorded", got=call_id)
        links = self.chain(parent_id)
        before = sum(len(link.media) for link in links)
        compact = _after(compact_prompt, _joined(link.compact for link in links), "compact")
        expanded = _after(expanded_prompt, _joined(link.expanded for link in links), "expanded")
        new = tuple(media[before:])
        self._check_counts(compact, expanded, new, len(media), before)
        tokens = tuple(generated)
        call = CapturedCall(
            call_id=call_id,
            parent_id=parent_id,
            compact=(*compact, *tokens),
            expanded=(*expanded, *tokens),
            generated=tokens,
            media=new,
            media_before=before,
            expanded_length=len(expanded_prompt) + len(tokens),
            geometry_digest=geometry_digest((*expanded, *tokens), new),
        )
        self.calls[call_id] = call
        return call

    def reassemble[RowsT: Rows](self, terminal_id: str, columns: MutableMapping[str, RowsT]) -> Reassembled[RowsT]:
        """Walk the chain of ``terminal_id`` and take each call's media columns out of ``columns`` (by call id).

        Nothing is taken unless all of it fits.

        Raises:
            AlignmentError: ``media_columns_missing`` or ``media_mismatch``, naming the call.
        """
        links = self.chain(terminal_id)
        for link in links:
            rows = sum(item.rows for item in link.media)
            held = columns.get(link.call_id)
            if held is None and rows:
                raise AlignmentError(
                    "media_columns_missing: a call's media columns are not there", got=link.call_id
                )
            if (0 if held is None else len(held)) != rows:
                raise AlignmentError(f"media_mismatch: call {link.call_id!r} recorded other media columns",
                                     got=len(held or ()), allowed=f"{rows} rows")  # fmt: skip
            if geometry_digest(link.expanded, link.media) != link.geometry_digest:
                raise AlignmentError("media_mismatch: geometry and tokens of a call no longer belong together",
                                     got=link.call_id)  # fmt: skip
        generated: list[int] = []
        for link in links:
            generated += range(link.expanded_length - len(link.generated), link.expanded_length)
        return Reassembled(
            expanded=_joined(link.expanded for link in links),
            compact=_joined(link.compact for link in links),
            generated=tuple(generated),
            media=tuple(item for link in links for item in link.media),
            columns=tuple(columns.pop(link.call_id) for link in links if link.call_id in columns),
        )

    def _placeholders(self, tokens: Collection[int]) -> int:
        return sum(run.length for run in find_runs(tuple(tokens), self.media_token_ids))

    def _check_counts(
        self, compact: TokenIds, expanded: TokenIds, new: tuple[CapturedMedia, ...], given: int, before: int
    ) -> None:
        if given < before:
            raise AlignmentError(
                "the conversation has fewer media than its parent's", got=given, allowed=str(before)
            )
        if self._placeholders(compact) != len(new):
            raise AlignmentError("compact prompt has not one placeholder a new media item",
                                 got=self._placeholders(compact), allowed=str(len(new)))  # fmt: skip
        wanted = sum(item.tokens for item in new)
        if self._placeholders(expanded) != wanted:
            raise AlignmentError("expanded prompt has other placeholders than the new media's features",
                                 got=self._placeholders(expanded), allowed=str(wanted))  # fmt: skip


def geometry_digest(expanded: Sequence[int], media: Sequence[CapturedMedia]) -> str:
    """``sha256:<hex>`` that binds a call's media, in order, to its expanded tokens."""
    items = [[item.media_id, item.kind, item.tokens, item.rows, list(item.grid)] for item in media]
    text = json.dumps([list(expanded), items], separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _joined(parts: Iterable[TokenIds]) -> TokenIds:
    return tuple(token for part in parts for token in part)


def _after(prompt: Sequence[int], chain: TokenIds, space: str) -> TokenIds:
    if tuple(prompt[: len(chain)]) != chain:
        differs = next(
            (place for place, pair in enumerate(zip(prompt, chain, strict=False)) if pair[0] != pair[1]),
            len(prompt),
        )
        raise AlignmentError(f"the {space} prompt does not extend its parent's chain of {len(chain)} tokens",
                             got=f"a difference at {differs}")  # fmt: skip
    return tuple(prompt[len(chain) :])
