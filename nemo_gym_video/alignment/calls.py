# SPDX-License-Identifier: Apache-2.0
"""Aligns a contract with what the engine really did, call by call, from the token ids alone.

Of each call only the new part of the prompt is read: tokens that the chain of earlier calls already has are not
attributed again, and the model's own output is never media.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nemo_gym_video.alignment.findings import FAILURE_KIND, AlignedRegion, Alignment, Finding
from nemo_gym_video.alignment.judge import AlignedItem, Judge, Share, count_words
from nemo_gym_video.alignment.runs import Run, TokenArray, find_runs, token_array
from nemo_gym_video.alignment.shares import Wanted, assign_runs
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState

__all__ = [
    "FAILURE_KIND",
    "AlignedRegion",
    "Aligner",
    "Alignment",
    "Finding",
    "ModelCall",
    "align_calls",
]

TokenIds = Sequence[int] | TokenArray


class AlignedContract(Protocol):
    """What alignment reads of a contract; see ``RowContract``."""

    @property
    def items(self) -> Sequence[AlignedItem]:
        """The row's media in prompt order."""

    @property
    def settings(self) -> ProcessorSettings | None:
        """The processor behind the prediction."""

    @property
    def state(self) -> CallState:
        """The engine state behind the prediction."""

    @property
    def media_token_ids(self) -> tuple[int, ...]:
        """Ids that stand for features."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call: the whole prompt in expanded token space, and what the model generated."""

    prompt_token_ids: TokenIds
    generation_token_ids: TokenIds = ()


@dataclass(slots=True)
class _Seen:
    """An item that a call has introduced, with the run lengths it got there."""

    number: int
    item: AlignedItem
    lengths: tuple[int, ...]


class Aligner:
    """Aligns the calls of one rollout as they come. Not for several rollouts or threads."""

    def __init__(self, contract: AlignedContract, *, media_token_ids: Iterable[int] | None = None) -> None:
        """Start a rollout.

        Args:
            contract: the row's contract; ``add_items`` takes what the environment brings later.
            media_token_ids: ids that stand for features, when the contract does not know them.

        Raises:
            AlignmentError: nobody says which ids are media tokens.
        """
        given = contract.media_token_ids if media_token_ids is None else tuple(media_token_ids)
        if not given:
            raise AlignmentError(
                "nobody says which token ids are media placeholders",
                allowed="media_token_ids in the contract (the ids of the family's image and video tokens)",
            )
        self.media_token_ids = given
        self.alignment = Alignment()
        self._contract = contract
        self._pending = list(enumerate(contract.items))
        self._items = len(self._pending)
        self._seen: list[_Seen] = []
        self._chain: TokenArray = np.zeros(0, dtype=np.int64)
        self._turn = 0
        settings = contract.settings
        self._can_fuse = settings is not None and settings.adjacent_regions_can_fuse

    def add_items(self, items: Sequence[AlignedItem]) -> None:
        """Expect ``items`` (an environment's media) after those already known; their numbers go on."""
        self._pending += [(self._items + place, item) for place, item in enumerate(items)]
        self._items += len(items)

    def align_call(
        self, prompt_token_ids: TokenIds, generation_token_ids: TokenIds = (), *, last: bool = False
    ) -> Alignment:
        """Align the next model call and return what it adds; ``alignment`` holds all so far.

        With ``last``, items of no named turn are all expected by now.

        Raises:
            AlignmentError: token ids are no flat integers.
        """
        prompt = token_array(prompt_token_ids, name=f"prompt_token_ids of call {self._turn}")
        generated = token_array(generation_token_ids, name=f"generation_token_ids of call {self._turn}")
        findings: list[Finding] = []
        agreed = _agreed(self._chain, prompt)
        start = len(self._chain)
        if agreed < start:
            findings.append(self._prefix_changed(agreed))
            start = 0
        runs: Sequence[Run] = find_runs(prompt, self.media_token_ids, start=start)
        added = Alignment(findings=tuple(findings))
        if agreed < len(self._chain):
            reread, runs = self._reread(runs)
            added = added.joined(reread)
        added = added.joined(self._match(runs, len(prompt), last=last))
        added = added.joined(self._generated(generated))
        self._chain = np.concatenate([prompt, generated])
        self._turn += 1
        self.alignment = self.alignment.joined(added)
        return added

    def finish(self) -> Alignment:
        """The whole rollout's alignment; items that no call showed are ``run_missing``."""
        judge = self._judge(0)
        for number, item in self._pending:
            self.alignment = self.alignment.joined(judge.judge(Share(number=number, item=item, runs=())))
        self._pending = []
        return self.alignment

    def _judge(self, prompt_length: int) -> Judge:
        return Judge(
            turn=self._turn,
            prompt_length=prompt_length,
            settings=self._contract.settings,
            state=self._contract.state,
        )

    def _match(self, runs: Sequence[Run], prompt_length: int, *, last: bool) -> Alignment:
        """Give the new runs to the items that this call introduces."""
        due = self._due(runs, last=last)
        assignment = assign_runs([_wanted(item) for _, item in due], runs)
        judge = self._judge(prompt_length)
        added = Alignment()
        fused = {place for _, places in assignment.fused for place in places}
        for place, ((number, item), share) in enumerate(zip(due, assignment.shares, strict=True)):
            judged = judge.judge(Share(number=number, item=item, runs=share))
            if place in fused and not self._can_fuse:
                judged = _with_status(judged, "fused_regions")
            added = added.joined(judged)
            self._seen.append(_Seen(number, item, tuple(run.length for run in share)))
        findings = [self._fused(run, [due[place][0] for place in places]) for run, places in assignment.fused]
        if assignment.surplus:
            findings.append(self._surplus(assignment.surplus))
        return added.joined(Alignment(findings=tuple(findings)))

    def _due(self, runs: Sequence[Run], *, last: bool) -> list[tuple[int, AlignedItem]]:
        """Items that this call shows first: those of its turn or earlier, and of no named turn while runs last."""
        due: list[tuple[int, AlignedItem]] = []
        run_count, token_count = 0, 0
        tokens = sum(run.length for run in runs)
        while self._pending:
            number, item = self._pending[0]
            room = run_count < len(runs) or (self._can_fuse and token_count < tokens)
            if item.turn is not None and item.turn > self._turn:
                break
            if item.turn is None and not (last or room):
                break
            lengths = _wanted(item).lengths
            run_count += len(lengths) if lengths is not None else 1 if item.counted_as == "image" else len(runs)
            token_count += sum(lengths or ())
            due.append((number, item))
            del self._pending[0]
        return due

    def _reread(self, runs: Sequence[Run]) -> tuple[Alignment, Sequence[Run]]:
        """After a changed prefix: take the runs of the items seen before from the whole prompt's runs."""
        count = sum(len(seen.lengths) for seen in self._seen)
        judge = self._judge(0)
        findings = []
        place = 0
        for seen in self._seen:
            found = [run.length for run in runs[place : place + len(seen.lengths)]]
            place += len(seen.lengths)
            if tuple(found) != seen.lengths:
                findings.append(judge.changed(seen.number, seen.item, seen.lengths, found))
        return Alignment(findings=tuple(findings)), runs[count:]

    def _prefix_changed(self, agreed: int) -> Finding:
        return Finding(
            kind="prefix_changed",
            turn=self._turn,
            item=None,
            region=None,
            expected=len(self._chain),
            found=agreed,
            message=(
                f"the prompt does not extend the {len(self._chain)} tokens of the calls before it: it differs "
                f"from position {agreed} on; send back the recorded token ids instead of re-rendered text, and "
                "keep the engine's processor cache on"
            ),
        )

    def _generated(self, generated: TokenArray) -> Alignment:
        runs = find_runs(generated, self.media_token_ids)
        if not runs:
            return Alignment()
        found = sum(run.length for run in runs)
        message = (
            f"the model itself wrote {count_words([run.length for run in runs])} of media (first at position "
            f"{runs[0].start} of its output); they are text, not media: a trainer must count placeholders in "
            "prompt positions only"
        )
        finding = Finding(
            kind="generated_media_token",
            turn=self._turn,
            item=None,
            region=None,
            expected=0,
            found=found,
            message=message,
            masks_sample=False,
        )
        return Alignment(findings=(finding,))

    def _surplus(self, runs: Sequence[Run]) -> Finding:
        lengths = [run.length for run in runs]
        message = (
            f"{count_words(lengths)} from position {runs[0].start} of the prompt on belong to no item of the "
            "contract: a literal placeholder in the text, or media of the environment that was not announced"
        )
        return Finding(
            kind="run_unexpected",
            turn=self._turn,
            item=None,
            region=None,
            expected=0,
            found=sum(lengths),
            message=message,
        )

    def _fused(self, run: Run, sharers: Sequence[int]) -> Finding:
        numbers = ", ".join(map(str, sharers))
        why = "this family wraps every region, so the wrappers were lost on the way"
        if self._can_fuse:
            why = "this family has no wrappers; the split is the processor's"
        return Finding(
            kind="fused_regions",
            turn=self._turn,
            item=sharers[0],
            region=None,
            expected=run.length,
            found=run.length,
            message=f"one run of {run.length} tokens at {run.start} holds several regions (item {numbers}): {why}",
            masks_sample=not self._can_fuse,
        )


def align_calls(
    contract: AlignedContract, calls: Sequence[ModelCall], *, media_token_ids: Iterable[int] | None = None
) -> Alignment:
    """Align all model calls of a rollout with its contract.

    Raises:
        AlignmentError: token ids are no flat integers, or nobody says which are media tokens.
    """
    aligner = Aligner(contract, media_token_ids=media_token_ids)
    for place, call in enumerate(calls):
        aligner.align_call(call.prompt_token_ids, call.generation_token_ids, last=place == len(calls) - 1)
    return aligner.finish()


def _wanted(item: AlignedItem) -> Wanted:
    lengths = None
    if item.regions is not None:
        lengths = tuple(length for region in item.regions for length in region.run_lengths)
    return Wanted(lengths=lengths, is_video=item.counted_as == "video")


def _with_status(alignment: Alignment, status: str) -> Alignment:
    regions = tuple(
        dataclasses.replace(region, status=status, provenance="engine") for region in alignment.regions
    )
    return dataclasses.replace(alignment, regions=regions)


def _agreed(chain: TokenArray, prompt: TokenArray) -> int:
    """Length of the common prefix."""
    common = min(len(chain), len(prompt))
    differs = chain[:common] != prompt[:common]
    return int(differs.argmax()) if differs.any() else common
