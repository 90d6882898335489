# SPDX-License-Identifier: Apache-2.0
"""Follows the tokens of a rollout from call to call: which part of a prompt is new, and the runs in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment.runs import Run, TokenArray, checked_ids, list_runs, plain_ids, shared_prefix

CarriedRule = Callable[[Sequence[Run], bool], int | None]
"""How many of the first runs belong to media of earlier turns, given whether there can be any; None: unclear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTokens:
    """What one model call adds. ``shared`` leading tokens of its prompt were seen before, of ``seen`` in all.

    ``runs`` are the runs open to the call's new media. After a restart ``carried`` holds the runs that belong to
    media of earlier turns, or None when old and new cannot be told apart; ``runs`` then holds both.
    """

    segment: int
    restarted: bool
    shared: int
    seen: int
    prompt_length: int
    runs: tuple[Run, ...]
    carried: tuple[Run, ...] | None
    generated_runs: tuple[Run, ...]


class TokenChain:
    """The tokens of the current segment: every prompt should repeat them all and go on from there."""

    def __init__(self, media_token_ids: Sequence[int]) -> None:
        """``media_token_ids`` may be empty: then there are no runs."""
        self._ids = media_token_ids
        self._seen: list[int] = []
        self._segment = 0
        self._introduced = 0  # runs that came with any call so far, of this segment or of one before

    def add(
        self,
        prompt_token_ids: Sequence[int] | TokenArray,
        generation_token_ids: Sequence[int] | TokenArray,
        carried_rule: CarriedRule,
        *,
        call: int,
    ) -> CallTokens:
        """Take the next call in. A prompt that does not extend what was seen starts a new segment.

        A call without prompt tokens leaves the chain as it was: nothing is known of what it saw. Only new tokens
        are looked at, so a long shared prefix costs nothing.

        Raises:
            AlignmentError: token ids are no flat integers.
        """
        prompt = plain_ids(prompt_token_ids, name=f"prompt_token_ids of call {call}")
        generated = plain_ids(generation_token_ids, name=f"generation_token_ids of call {call}")
        seen = len(self._seen)
        shared = shared_prefix(self._seen, prompt) if prompt else seen
        restarted = shared < seen
        start = 0 if restarted else shared
        new = checked_ids(prompt[start:] if start else prompt, name=f"prompt_token_ids of call {call}")
        runs = list_runs(new, self._ids, shift=start)
        generated = checked_ids(generated, name=f"generation_token_ids of call {call}")
        carried: tuple[Run, ...] | None = ()
        if restarted:
            self._segment += 1
            kept = sum(run.start < shared for run in runs)
            # Media of any earlier segment may come back, also those that the last one had dropped.
            count = carried_rule(runs[kept:], self._introduced > kept)
            carried = None if count is None else runs[: kept + count]
            runs = runs[kept + (count or 0) :]
        generated_runs = list_runs(generated, self._ids)
        self._introduced += len(runs) + len(generated_runs)
        if prompt:
            self._seen = [*prompt, *generated]
        return CallTokens(
            segment=self._segment,
            restarted=restarted,
            shared=shared,
            seen=seen,
            prompt_length=len(prompt),
            runs=runs,
            carried=carried,
            generated_runs=generated_runs,
        )
