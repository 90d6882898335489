# SPDX-License-Identifier: Apache-2.0
"""The per-turn indexer: the media that each trainable turn saw for the first time, and their tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nemo_gym_video.alignment.calls import Aligner
from nemo_gym_video.alignment.expectations import Item, Predictions
from nemo_gym_video.alignment.findings import Finding
from nemo_gym_video.alignment.occurrences import Skipped, Turn, TurnIndex
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
from nemo_gym_video.alignment.runs import list_runs
from nemo_gym_video.errors import AlignmentError, RowError, Where
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

    >>> from nemo_gym_video import index_turns
    >>> rollout = {
    ...     "responses_create_params": {
    ...         "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "media/cat.png"}]}]
    ...     },
    ...     "response": {
    ...         "output": [
    ...             {"type": "message", "role": "assistant", "content": [],
    ...              "prompt_token_ids": [1, 18, 18, 18, 2], "generation_token_ids": [7, 8]}
    ...         ]
    ...     },
    ... }
    >>> index = index_turns(rollout, media_token_ids=[18])
    >>> [(one.source, one.spans) for one in index.turns[0].media]
    [('media/cat.png', ((1, 4),))]
    """
    if not isinstance(rollout, Mapping):
        raise RowError("rollout is no object", got=rollout, where=where)
    return _Indexer(rollout, media_token_ids, contract, processor, where or Where()).run()


class _Indexer:
    """State of one pass. Whose runs are whose, and whether they agree, is the aligner's to say."""

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
        self.aligner = Aligner(
            self.predictions.basis,
            media_token_ids=self.ids or (),
            processor=self.predictions.settings,
            ids_required=False,
        )
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
        judged = self.aligner.finish()
        unclaimed = [*self.shadowed, *self.predictions.items_of(group_items(pending), None)]
        contract_finding = self.predictions.finding()
        findings = [*self.findings, *judged.findings]
        if contract_finding is not None:
            findings.append(contract_finding)
        return TurnIndex(
            turns=tuple(self.turns),
            unclaimed=tuple(item.occurrence(None) for item in unclaimed),
            skipped=tuple(self.skipped),
            findings=tuple(findings),
            media_token_ids=self.ids,
            regions=judged.regions,
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
        """Ask the judge about one turn, and note what it says."""
        number = len(self.turns)
        foreign = 0 if self.turns else self._shadowed_runs(media, item.prompt)
        place = Where(file=self.where.file, line=self.where.line, row=self.where.row, turn=number)
        try:
            self.aligner.align_call(
                item.prompt, item.generated, items=[one.aligned for one in media], foreign_runs=foreign
            )
        except AlignmentError as error:
            raise RowError(str(error), where=place) from error
        call = self.aligner.tokens
        assert call is not None
        self.turns.append(
            Turn(
                turn=number,
                output_item=item.index,
                segment=call.segment,
                new_from=0 if call.restarted else call.shared,
                prompt_token_ids=item.prompt,
                generation_token_ids=item.generated,
                media=tuple(one.occurrence(runs) for one, runs in zip(media, self.aligner.shares, strict=True)),
                carried_runs=call.carried or (),
                generated_runs=call.generated_runs,
            )
        )

    def _shadowed_runs(self, media: list[Item], prompt: list[int]) -> int:
        """How many of the first turn's runs belong to a record that a better one shadows; they come first.

        Some agents put the task into ``agent_input`` and the opening observation into ``seed_obs``; the prompt has
        both, the precedence takes one. Only the tokens tell: when they hold exactly the runs of both, the media of
        the shadowed record come first, and are left to no turn as trainers leave them.
        """
        if len(self.first_records) < 2:
            return 0
        found = len(list_runs(prompt, self.ids or ()))
        chosen = self._total_runs(media)
        if found <= (chosen or 0):
            return 0
        origin, entries = self.first_records[1]
        own = [item.ref.urls for item in media]
        hidden = [
            item
            for item in self.predictions.plain_items(group_items([*read_items(entries, origin, self.where)]))
            if item.ref.urls not in own
        ]
        count = self._total_runs(hidden)
        if not count or chosen is None or count + chosen != found:
            return 0
        self.shadowed = hidden
        text = f"{len(hidden)} media of {origin} are in the prompt, but {self.first_records[0][0]} shadows them: "
        self.findings.append(Finding(kind="media_shadowed", turn=0, expected=chosen, found=found,
                                     message=text + "they are on no turn"))  # fmt: skip
        return count

    def _total_runs(self, items: Sequence[Item]) -> int | None:
        """Number of runs of all ``items`` together; None when one of them is unknown."""
        counts = [self.aligner.expected_runs(item.aligned) for item in items]
        return None if None in counts else sum(count or 0 for count in counts)
