# SPDX-License-Identifier: Apache-2.0
"""The per-turn indexer: the media that each trainable turn saw for the first time, and their tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nemo_gym_video.alignment.chain import CallTokens, TokenChain
from nemo_gym_video.alignment.expectations import Item, Predictions
from nemo_gym_video.alignment.occurrences import Finding, Occurrence, Skipped, Turn, TurnIndex
from nemo_gym_video.alignment.rollout_items import (
    FirstRecords,
    RolloutItem,
    first_prompt,
    group_items,
    output_items,
    read_items,
    read_response,
    restore_tags,
)
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.alignment.turn_shares import assign_runs
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.processors.families.base import ProcessorSettings

if TYPE_CHECKING:
    from nemo_gym_video.contract import RowContract


def index_turns(
    rollout: Mapping[str, Any],
    *,
    media_token_ids: Collection[int] | None = None,
    contract: RowContract | Mapping[str, Any] | None = None,
    processor: ProcessorSettings | str | None = None,
    where: Where | None = None,
) -> TurnIndex:
    """Put every media item of a rollout on the turn that introduced it, with its runs in that turn's prompt.

    A turn is an output item with non-empty ``generation_token_ids``; its media are those of all items since the
    previous turn, for the first turn also those of the first prompt (``response.seed_obs``, else
    ``response.agent_input``, else the request's input). Only typed parts are media. Nothing is opened.

    Args:
        rollout: one line of a rollout file, as parsed from JSON.
        media_token_ids: placeholder token ids. Without them those of ``processor`` count, else those that the
            rollout recorded (``media_token_ids``); with none of these no spans are found and the finding
            ``media_token_ids_unknown`` says so.
        contract: the row's contract, or its JSON; the rollout's own ``media_contract`` when not given.
        processor: settings, or the name of a preset or folder: says how many runs a video of known frame count
            takes where the contract does not.
        where: place of the rollout, for error messages.

    Raises:
        RowError: the rollout has not the shape that Gym writes.
        ContractError: the contract is malformed.
    """
    if not isinstance(rollout, Mapping):
        raise RowError("rollout is no object", got=rollout, where=where)
    return _Indexer(rollout, media_token_ids, contract, processor, where or Where()).run()


class _Indexer:
    """State of one pass: the tokens of the current segment, and what has been found."""

    def __init__(
        self,
        rollout: Mapping[str, Any],
        media_token_ids: Collection[int] | None,
        contract: RowContract | Mapping[str, Any] | None,
        processor: ProcessorSettings | str | None,
        where: Where,
    ) -> None:
        self.rollout = rollout
        self.where = where
        self.response = read_response(rollout, where)
        self.predictions = Predictions.of(rollout, contract=contract, processor=processor, where=where)
        self.ids = self.predictions.media_token_ids(media_token_ids)
        self.turns: list[Turn] = []
        self.skipped: list[Skipped] = []
        self.findings: list[Finding] = []
        self.chain = TokenChain(self.ids or ())
        self.first_records: FirstRecords = []
        self.shadowed: list[Item] = []

    def run(self) -> TurnIndex:
        """Walk the conversation once."""
        pending = self._first_items()
        for item in read_items(output_items(self.response, self.where), "output", self.where):
            self.skipped.extend(item.skipped)
            if not item.generated:
                pending.append(item)
                continue
            self._add_turn(item, self.predictions.items_of(group_items(pending), len(self.turns)))
            pending = []
        unclaimed = [*self.shadowed, *self.predictions.items_of(group_items(pending), None)]
        contract_finding = self.predictions.finding()
        if contract_finding is not None:
            self.findings.append(contract_finding)
        if self.ids is None and any(turn.media for turn in self.turns):
            self.findings.insert(0, Finding(
                kind="media_token_ids_unknown",
                message="no media token ids were given or recorded, so no spans were looked for",
            ))  # fmt: skip
        return TurnIndex(
            turns=tuple(self.turns),
            unclaimed=tuple(item.occurrence(None) for item in unclaimed),
            skipped=tuple(self.skipped),
            findings=tuple(self.findings),
            media_token_ids=self.ids,
        )

    def _first_items(self) -> list[RolloutItem]:
        """The first prompt's items, with the frame tags that nemo-gym dropped on the way, where they are known."""
        self.first_records = records = first_prompt(self.rollout, self.response, self.where)
        if not records:
            return []
        origin, entries = records[0]
        items = list(read_items(entries, origin, self.where))
        for item in items:
            self.skipped.extend(item.skipped)
        parts = [part for item in items for part in item.parts]
        raw_origin, raw_entries = records[-1]
        if raw_origin != origin and raw_origin == "input":
            raw = [part for item in read_items(raw_entries, "input", self.where) for part in item.parts]
            parts = restore_tags(parts, raw)
        parts = self.predictions.retag(parts)
        return [replace(item, parts=tuple(part for part in parts if part.message == item.index)) for item in items]

    def _add_turn(self, item: RolloutItem, media: list[Item]) -> None:
        number = len(self.turns)
        if not item.prompt:
            self._find("prompt_token_ids_missing", "the turn has generated tokens but no prompt tokens", number)
        place = Where(file=self.where.file, line=self.where.line, row=self.where.row, turn=number)
        seen = len(self.chain.seen)
        call = self.chain.add(item.prompt, item.generated, [one.need for one in media], place)
        if call.restarted:
            self._report_restart(number, call, seen)
        known = self.ids is not None and bool(item.prompt)
        occurrences = self._share_out(number, media, call) if known else [one.occurrence(None) for one in media]
        if call.generated_runs:
            total = sum(run.length for run in call.generated_runs)
            self._find(
                "generated_media_token", f"the model wrote {total} media tokens itself", number, found=total
            )
        self.turns.append(
            Turn(
                turn=number,
                output_item=item.index,
                segment=call.segment,
                new_from=0 if call.restarted else call.shared,
                prompt_token_ids=item.prompt,
                generation_token_ids=item.generated,
                media=tuple(occurrences),
                carried_runs=call.carried or (),
                generated_runs=call.generated_runs,
            )
        )

    def _share_out(self, number: int, media: list[Item], call: CallTokens) -> list[Occurrence]:
        """The turn's media with their runs; whatever does not add up becomes a finding."""
        runs = call.runs if self.turns else self._behind_shadowed(media, call.runs)
        shares = assign_runs([item.need for item in media], runs, open_front=call.carried is None)
        result = []
        for place, (item, own) in enumerate(zip(media, shares.runs, strict=True)):
            result.append(item.occurrence(own))
            if own is not None:
                self.findings.extend(item.compare(own, turn=number, place=place))
        if None in shares.runs:
            unclear = sum(own is None for own in shares.runs)
            self._find(
                "runs_ambiguous",
                f"{len(runs)} runs cannot be told apart for {unclear} media items: the number of runs of more "
                "than one item is unknown; give the contract or name the processor",
                number, found=len(runs),
            )  # fmt: skip
        if shares.left_over:
            spans = ", ".join(f"[{run.start}, {run.end})" for run in shares.left_over[:4])
            self._find(
                "run_unexpected",
                f"{len(shares.left_over)} media runs belong to no media of the turn, at {spans}",
                number, expected=len(runs) - len(shares.left_over), found=len(runs),
            )  # fmt: skip
        return result

    def _behind_shadowed(self, media: list[Item], runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The first turn's runs without those of a record that a better one shadows.

        Some agents put the task into ``agent_input`` and the opening observation into ``seed_obs``; the prompt has
        both, the precedence takes one. Only the tokens tell: when they hold exactly the runs of both, the media of
        the shadowed record come first, and are left to no turn as trainers leave them.
        """
        if len(self.first_records) < 2 or len(runs) <= (total_runs(media) or 0):
            return runs
        origin, entries = self.first_records[1]
        own = [item.ref.urls for item in media]
        hidden = [
            item
            for item in self.predictions.plain_items(group_items([*read_items(entries, origin, self.where)]))
            if item.ref.urls not in own
        ]
        count, chosen = total_runs(hidden), total_runs(media)
        if not count or chosen is None or count + chosen != len(runs):
            return runs
        self.shadowed = hidden
        text = f"{len(hidden)} media of {origin} are in the prompt, but {self.first_records[0][0]} shadows them: "
        self._find("media_shadowed", text + "they are on no turn", 0, expected=chosen, found=len(runs))
        return runs[count:]

    def _report_restart(self, number: int, call: CallTokens, seen: int) -> None:
        text = f"the prompt repeats only {call.shared} of the {seen} tokens seen so far; segment {call.segment} "
        text += "starts here"
        if call.carried:
            text += f", {len(call.carried)} of its runs belong to media of earlier turns"
        self._find("prefix_changed", text, number, expected=seen, found=call.shared)

    def _find(
        self, kind: str, message: str, turn: int, *, expected: int | None = None, found: int | None = None
    ) -> None:
        self.findings.append(Finding(kind=kind, message=message, turn=turn, expected=expected, found=found))


def total_runs(items: Sequence[Item]) -> int | None:
    """Number of runs of all ``items`` together; None when one of them is unknown."""
    counts = [item.need.runs for item in items]
    return None if None in counts else sum(count or 0 for count in counts)
