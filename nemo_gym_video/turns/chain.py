# SPDX-License-Identifier: Apache-2.0
"""Follows the tokens of a rollout from call to call: which part of a prompt is new, and the runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tokens.runs import Run, find_runs
from nemo_gym_video.turns.assign import Need, carried_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTokens:
    """What one model call adds. ``shared`` leading tokens of its prompt were seen before.

    ``runs`` are the runs open to the call's new media. After a restart ``carried`` holds the runs that belong to
    media of earlier turns, or None when old and new cannot be told apart; ``runs`` then holds both.
    """

    segment: int
    restarted: bool
    shared: int
    runs: tuple[Run, ...]
    carried: tuple[Run, ...] | None
    generated_runs: tuple[Run, ...]


class TokenChain:
    """The tokens of the current segment: every prompt should repeat them all and go on from there."""

    def __init__(self, media_token_ids: Sequence[int]) -> None:
        """``media_token_ids`` may be empty: then there are no runs."""
        self._ids = media_token_ids
        self.seen: list[int] = []
        self._segment = 0

    def add(self, prompt: list[int], generated: list[int], needs: Sequence[Need], where: Where) -> CallTokens:
        """Take the next call in. A prompt that does not extend what was seen starts a new segment.

        A call without prompt tokens leaves the chain as it was: nothing is known of what it saw.
        """
        shared = shared_prefix(self.seen, prompt) if prompt else len(self.seen)
        restarted = shared < len(self.seen)
        runs = self._find(prompt, 0 if restarted else shared, "prompt_token_ids", where)
        carried: tuple[Run, ...] | None = ()
        if restarted:
            self._segment += 1
            kept = sum(run.start < shared for run in runs)
            older = any(run.start >= shared for run in self._find(self.seen, 0, "prompt_token_ids", where))
            count = carried_count(needs, runs[kept:], older=older)
            carried = None if count is None else runs[: kept + count]
            runs = runs[kept + (count or 0) :]
        call = CallTokens(
            segment=self._segment,
            restarted=restarted,
            shared=shared,
            runs=runs,
            carried=carried,
            generated_runs=self._find(generated, 0, "generation_token_ids", where),
        )
        if prompt:
            self.seen = [*prompt, *generated]
        return call

    def _find(self, token_ids: list[int], start: int, name: str, where: Where) -> tuple[Run, ...]:
        """Runs from ``start`` on. Only these tokens are looked at, so a long shared prefix costs nothing."""
        new = token_ids[start:] if start else token_ids
        if not set(map(type, new)) <= {int}:
            raise RowError(f"{name} holds something that is no token id", allowed="integers", where=where)
        runs = find_runs(new, self._ids) if self._ids else ()
        return tuple(replace(run, start=run.start + start) for run in runs) if start else runs


def shared_prefix(seen: list[int], prompt: list[int]) -> int:
    """Number of leading tokens that both have; ``len(seen)`` when ``prompt`` extends ``seen``."""
    low, high = 0, min(len(seen), len(prompt))
    if seen == prompt[:high] if high == len(seen) else seen[:high] == prompt:
        return high
    while low < high:  # the first difference lies in [low, high)
        middle = (low + high + 1) // 2
        if seen[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
