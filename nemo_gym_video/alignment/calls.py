# SPDX-License-Identifier: Apache-2.0
"""Aligns media with what the engine really did, call by call, from the token ids alone.

The one place where it is decided: the agent, the indexer and the trainers' views all come here.
Of each call only the new part of the prompt is read: tokens that the chain of earlier calls already has are not
attributed again, and the model's own output is never media.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment.chain import CallTokens, TokenChain
from nemo_gym_video.alignment.findings import FAILURE_KIND, AlignedRegion, Alignment, Finding
from nemo_gym_video.alignment.judge import Judge, Share, count_words
from nemo_gym_video.alignment.run_counts import video_runs
from nemo_gym_video.alignment.runs import Run, TokenArray
from nemo_gym_video.alignment.shares import Wanted, assign_runs, carried_count
from nemo_gym_video.contract import ContractItem, RowContract
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.regions import MediaKind

__all__ = [
    "FAILURE_KIND",
    "AlignedRegion",
    "Aligner",
    "Alignment",
    "Finding",
    "ModelCall",
    "align_calls",
    "no_contract",
    "uncounted_media",
]

TokenIds = Sequence[int] | TokenArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call: the whole prompt in expanded token space, and what the model generated.

    ``items`` are the media that it shows first, where somebody knows; None leaves that to the contract's turns.
    """

    prompt_token_ids: TokenIds
    generation_token_ids: TokenIds = ()
    items: Sequence[ContractItem] | None = None


@dataclass(slots=True)
class _Seen:
    """An item that a call has introduced, with the run lengths it got there; None where that is unclear."""

    number: int
    item: ContractItem
    lengths: tuple[int, ...] | None


def uncounted_media(kind: MediaKind, source: str, *, frames: int | None = None) -> ContractItem:
    """An item of which only the messages speak: nothing is predicted. ``frames`` is None where nobody says."""
    return ContractItem(kind=kind, source=source, size=None, counted_as=kind, frames=frames or 0)


def no_contract() -> RowContract:
    """The contract of a row without one: no items, no processor, no media token ids."""
    return RowContract(mode="none", items=(), message_digest=None)


class Aligner:
    """Aligns the calls of one rollout as they come. Not for several rollouts or threads.

    ``tokens`` and ``shares`` are what the last call added: its tokens, and the runs of each item that it showed
    first (None: cannot be told).
    """

    def __init__(
        self,
        contract: RowContract,
        *,
        media_token_ids: Iterable[int] | None = None,
        processor: ProcessorSettings | None = None,
        ids_required: bool = True,
    ) -> None:
        """Start a rollout.

        Args:
            contract: the row's contract; ``add_items`` takes what the environment brings later.
            media_token_ids: ids that stand for features, when the contract does not know them.
            processor: says how many runs a video takes that the contract does not predict; the contract's own
                when not given.
            ids_required: without it a rollout of unknown ids is no error but a finding, and has no spans.

        Raises:
            AlignmentError: nobody says which ids are media tokens.
        """
        given = contract.media_token_ids if media_token_ids is None else tuple(media_token_ids)
        if not given and ids_required:
            raise AlignmentError(
                "nobody says which token ids are media placeholders",
                allowed="media_token_ids in the contract (the ids of the family's image and video tokens)",
            )
        self.media_token_ids = given
        self.alignment = Alignment()
        self.tokens: CallTokens | None = None
        self.shares: tuple[tuple[Run, ...] | None, ...] = ()
        self._contract = contract
        self._processor = processor or contract.settings
        self._pending = list(enumerate(contract.items))
        self._items = len(self._pending)
        self._seen: list[_Seen] = []
        self._foreign = 0  # runs that were said to belong to no item, and those that the model wrote
        self._ids_missed = False
        self._chain = TokenChain(given)
        self._turn = 0
        settings = contract.settings
        self._can_fuse = settings is not None and settings.adjacent_regions_can_fuse

    def add_items(self, items: Sequence[ContractItem]) -> None:
        """Expect ``items`` (an environment's media) after those already known; their numbers go on."""
        self._pending += [(self._items + place, item) for place, item in enumerate(items)]
        self._items += len(items)

    def align_call(
        self,
        prompt_token_ids: TokenIds,
        generation_token_ids: TokenIds = (),
        *,
        last: bool = False,
        items: Sequence[ContractItem] | None = None,
        foreign_runs: int = 0,
    ) -> Alignment:
        """Align the next model call and return what it adds; ``alignment`` holds all so far.

        With ``last``, items of no named turn are all expected by now. ``items`` are all media that the call shows
        first, where the caller knows. The first ``foreign_runs`` new runs belong to none of them.

        Raises:
            AlignmentError: token ids are no flat integers.
        """
        due: list[tuple[int, ContractItem]] | None = None
        if items is not None:
            self.add_items(items)
            due, self._pending = self._pending, []

        def carried(runs: Sequence[Run], older: bool) -> int | None:
            nonlocal due
            if due is None:
                seen = sum(len(one.lengths or ()) for one in self._seen)
                due = self._due(runs[seen:], last=last)
            return carried_count([self._wanted(item) for _, item in due], runs, older=older)

        tokens = self._chain.add(prompt_token_ids, generation_token_ids, carried, call=self._turn)
        if due is None:
            due = self._due(tokens.runs, last=last)
        self.tokens = tokens
        added = self._restart(tokens)
        if tokens.prompt_length and self.media_token_ids:
            added = added.joined(self._match(due, tokens, foreign_runs))
        else:
            added = added.joined(self._unread(due, tokens))
        added = added.joined(self._generated(tokens.generated_runs))
        self._foreign += foreign_runs + len(tokens.generated_runs)
        self._turn += 1
        self.alignment = self.alignment.joined(added)
        return added

    def expected_runs(self, item: ContractItem) -> int | None:
        """Number of runs that ``item`` should have; None when unknown."""
        return self._wanted(item).count

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

    def _wanted(self, item: ContractItem) -> Wanted:
        is_video = item.counted_as == "video"
        if item.regions is not None:
            lengths = tuple(length for region in item.regions for length in region.run_lengths)
            return Wanted(lengths=lengths, is_video=is_video)
        number = video_runs(self._processor, item.frames or None) if is_video else 1
        return Wanted(lengths=None, is_video=is_video, number=number)

    def _match(self, due: Sequence[tuple[int, ContractItem]], tokens: CallTokens, foreign_runs: int) -> Alignment:
        """Give the new runs to the items that this call introduces."""
        runs = tokens.runs[foreign_runs:]
        wanted = [self._wanted(item) for _, item in due]
        assignment = assign_runs(wanted, runs, open_front=tokens.carried is None)
        judge = self._judge(tokens.prompt_length)
        added = Alignment()
        fused = {place for _, places in assignment.fused for place in places}
        for place, ((number, item), share) in enumerate(zip(due, assignment.shares, strict=True)):
            self._seen.append(_Seen(number, item, None if share is None else tuple(run.length for run in share)))
            if share is None:
                continue
            count = None if item.regions is not None else wanted[place].count
            judged = judge.judge(Share(number=number, item=item, runs=share, count=count))
            if place in fused and not self._can_fuse:
                judged = _with_status(judged, "fused_regions")
            added = added.joined(judged)
        self.shares = assignment.shares
        findings = [self._fused(run, [due[place][0] for place in places]) for run, places in assignment.fused]
        if None in assignment.shares:
            findings.append(self._ambiguous(runs, sum(share is None for share in assignment.shares)))
        if assignment.surplus:
            findings.append(self._surplus(assignment.surplus))
        return added.joined(Alignment(findings=tuple(findings)))

    def _unread(self, due: Sequence[tuple[int, ContractItem]], tokens: CallTokens) -> Alignment:
        """A call whose runs cannot be looked at: its items get none, and it is said why."""
        self._seen += [_Seen(number, item, None) for number, item in due]
        self.shares = (None,) * len(due)
        findings = []
        if not tokens.prompt_length:
            findings.append(Finding(kind="prompt_token_ids_missing", turn=self._turn,
                                    message="the turn has generated tokens but no prompt tokens"))  # fmt: skip
        if due and not self.media_token_ids and not self._ids_missed:
            self._ids_missed = True
            predicted = self._contract.settings is not None
            findings.append(Finding(
                kind="media_token_ids_unknown", masks_sample=predicted,
                message="no media token ids were given or recorded, so no spans were looked for",
            ))  # fmt: skip
        return Alignment(findings=tuple(findings))

    def _due(self, runs: Sequence[Run], *, last: bool) -> list[tuple[int, ContractItem]]:
        """Items that this call shows first: those of its turn or earlier, and of no named turn while runs last."""
        due: list[tuple[int, ContractItem]] = []
        run_count, token_count = 0, 0
        tokens = sum(run.length for run in runs)
        while self._pending:
            number, item = self._pending[0]
            room = run_count < len(runs) or (self._can_fuse and token_count < tokens)
            if item.turn is not None and item.turn > self._turn:
                break
            if item.turn is None and not (last or room):
                break
            lengths = self._wanted(item).lengths
            run_count += len(lengths) if lengths is not None else 1 if item.counted_as == "image" else len(runs)
            token_count += sum(lengths or ())
            due.append((number, item))
            del self._pending[0]
        return due

    def _restart(self, tokens: CallTokens) -> Alignment:
        """After a changed prefix: say so, and compare the items seen before, where all of them are still there."""
        if not tokens.restarted:
            return Alignment()
        findings = [self._prefix_changed(tokens)]
        lengths = [length for seen in self._seen for length in seen.lengths or ()]
        unclear = self._foreign or any(seen.lengths is None for seen in self._seen)
        if tokens.carried is None or unclear or len(tokens.carried) < len(lengths):
            return Alignment(findings=tuple(findings))
        place, judge = 0, self._judge(0)
        for seen in self._seen:
            before = seen.lengths or ()
            found = [run.length for run in tokens.carried[place : place + len(before)]]
            place += len(before)
            if tuple(found) != before:
                findings.append(judge.changed(seen.number, seen.item, before, found))
        if tokens.carried[place:]:
            findings.append(self._surplus(tokens.carried[place:]))
        return Alignment(findings=tuple(findings))

    def _prefix_changed(self, tokens: CallTokens) -> Finding:
        return Finding(
            kind="prefix_changed",
            turn=self._turn,
            expected=tokens.seen,
            found=tokens.shared,
            message=(
                f"the prompt does not extend the {tokens.seen} tokens of the calls before it: it differs "
                f"from position {tokens.shared} on, and segment {tokens.segment} starts here; send back the "
                "recorded token ids instead of re-rendered text, and keep the engine's processor cache on"
            ),
        )

    def _generated(self, runs: Sequence[Run]) -> Alignment:
        if not runs:
            return Alignment()
        message = (
            f"the model itself wrote {count_words([run.length for run in runs])} of media (first at position "
            f"{runs[0].start} of its output); they are text, not media: a trainer must count placeholders in "
            "prompt positions only"
        )
        found = sum(run.length for run in runs)
        finding = Finding(kind="generated_media_token", turn=self._turn, expected=0, found=found, message=message)
        return Alignment(findings=(finding,))

    def _ambiguous(self, runs: Sequence[Run], items: int) -> Finding:
        message = (
            f"{len(runs)} runs cannot be told apart for {items} media items: the number of runs of more than one "
            "item is unknown; give the contract or name the processor"
        )
        return Finding(kind="runs_ambiguous", turn=self._turn, found=len(runs), message=message)

    def _surplus(self, runs: Sequence[Run]) -> Finding:
        lengths = [run.length for run in runs]
        message = (
            f"{count_words(lengths)} from position {runs[0].start} of the prompt on belong to no item of the "
            "contract: a literal placeholder in the text, or media of the environment that was not announced"
        )
        return Finding(
            kind="run_unexpected",
            turn=self._turn,
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
            expected=run.length,
            found=run.length,
            message=f"one run of {run.length} tokens at {run.start} holds several regions (item {numbers}): {why}",
            masks_sample=not self._can_fuse,
        )


def align_calls(
    contract: RowContract,
    calls: Sequence[ModelCall],
    *,
    media_token_ids: Iterable[int] | None = None,
    ids_required: bool = True,
) -> Alignment:
    """Align all model calls of a rollout with its contract. Arguments are those of ``Aligner``.

    Raises:
        AlignmentError: token ids are no flat integers, or nobody says which are media tokens.

    >>> from nemo_gym_video import RowContract, align_calls
    >>> from nemo_gym_video.alignment.calls import ModelCall
    >>> contract = RowContract.from_json({
    ...     "version": 1, "mode": "images", "media_token_ids": [18],
    ...     "items": [{"kind": "image", "size": [64, 64], "regions": [{"run_lengths": [3]}]}],
    ... })
    >>> call = ModelCall(prompt_token_ids=[1, 18, 18, 18, 2], generation_token_ids=[7])
    >>> align_calls(contract, [call]).regions[0].spans
    ((1, 4),)
    """
    aligner = Aligner(contract, media_token_ids=media_token_ids, ids_required=ids_required)
    for place, call in enumerate(calls):
        aligner.align_call(
            call.prompt_token_ids, call.generation_token_ids, last=place == len(calls) - 1, items=call.items
        )
    return aligner.finish()


def _with_status(alignment: Alignment, status: str) -> Alignment:
    regions = tuple(
        dataclasses.replace(region, status=status, provenance="engine") for region in alignment.regions
    )
    return dataclasses.replace(alignment, regions=regions)
