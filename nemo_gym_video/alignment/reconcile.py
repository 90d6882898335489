# SPDX-License-Identifier: Apache-2.0
"""What a trainer needs to rebuild a prompt and its pixels with the counts that a rollout recorded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nemo_gym_video.alignment.runs import TokenArray, find_runs, token_array
from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.counts import grid_for_count
from nemo_gym_video.processors.families.base import Grid, ProcessorSettings
from nemo_gym_video.processors.regions import MediaKind, MediaSize


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run that the rollout recorded, in prompt order: whose it is and how long."""

    kind: MediaKind
    length: int


@dataclass(frozen=True, slots=True)
class ReconciledPrompt:
    """``token_ids`` [n] with every run at its recorded length.

    ``origins`` [n] are the positions in the ids as given, -1 for an inserted placeholder: index masks and
    log-probs with it to carry them over.
    """

    token_ids: tuple[int, ...]
    origins: tuple[int, ...]


def reconcile_prompt_ids(
    prompt_token_ids: Sequence[int] | TokenArray,
    recorded: Sequence[RecordedRun],
    *,
    media_token_ids: Collection[int],
    generated: Collection[int] = (),
) -> ReconciledPrompt:
    """Bring the image runs of a re-rendered prompt to the lengths that the rollout recorded.

    Args:
        prompt_token_ids: the whole sequence in expanded token space, as the trainer's processor rendered it.
        recorded: every media run of the rollout's prompt side, in order.
        media_token_ids: ids that stand for features.
        generated: positions in ``prompt_token_ids`` that the model generated; they are never touched or counted.

    Raises:
        AlignmentError: another number of runs than recorded, or a video run of another length (a video is never
            resized: sample and resize it as the engine did).
    """
    ids = token_array(prompt_token_ids, name="prompt_token_ids")
    runs = find_runs(_without(ids, generated), media_token_ids)
    if len(runs) != len(recorded):
        raise AlignmentError("prompt has another number of media runs than the rollout recorded", got=len(runs),
                             allowed=str(len(recorded)))  # fmt: skip
    pieces: list[npt.NDArray[np.int64]] = []
    place = 0
    for number, (run, wanted) in enumerate(zip(runs, recorded, strict=True)):
        if run.length != wanted.length and wanted.kind != "image":
            raise AlignmentError(f"run {number} is a video's and must match exactly", got=run.length,
                                 allowed=str(wanted.length))  # fmt: skip
        if wanted.length < 1:
            raise AlignmentError(f"recorded run {number} has no tokens", got=wanted.length, allowed="at least 1")
        kept = min(run.length, wanted.length)
        pieces += [np.arange(place, run.start + kept), np.full(wanted.length - kept, -1 - run.token_id)]
        place = run.end
    pieces.append(np.arange(place, len(ids)))
    # Below zero stands an inserted token: minus one minus its id.
    plan = np.concatenate(pieces)
    inserted = plan < 0
    new_ids = np.where(inserted, -1 - plan, ids[np.maximum(plan, 0)]) if len(ids) else plan
    return ReconciledPrompt(tuple(new_ids.tolist()), tuple(np.where(inserted, -1, plan).tolist()))


def processed_size_for(
    settings: ProcessorSettings, size: tuple[int, int], target_tokens: int
) -> tuple[tuple[int, int], Grid]:
    """The processed size (width, height) and patch grid (height, width) of an image with ``target_tokens``.

    ``size`` is the displayed (width, height). Resize the image to the processed size and the trainer's processor
    gives the recorded count.

    Raises:
        AlignmentError: no budget of the family's own rule gives that count, or more than one grid does.
    """
    found = grid_for_count(settings, MediaSize("image", *size), target_tokens)
    if found is None:
        raise AlignmentError(
            f"no single patch grid of {settings.family} gives this count for an image of {size[0]}x{size[1]}",
            got=target_tokens,
            allowed="a count that exactly one budget's grid has; mask the sample",
        )
    grid, processed = found
    return processed, grid


def _without(ids: TokenArray, generated: Collection[int]) -> TokenArray:
    """The ids with those at generated positions replaced by one that no tokenizer has."""
    if not generated:
        return ids
    places = token_array(sorted(generated), name="generated positions")
    if places[0] < 0 or places[-1] >= len(ids):
        raise AlignmentError("a generated position is outside the prompt", got=[int(places[0]), int(places[-1])],
                             allowed=f"0 to {len(ids) - 1}")  # fmt: skip
    hidden = ids.copy()
    hidden[places] = -1
    return hidden
