# SPDX-License-Identifier: Apache-2.0
"""Follows the tokens of a rollout from call to call: which part of a prompt is new, and the runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.alignment.turn_shares import Need, carried_count
from nemo_gym_video.errors import RowError, Where


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
        self._introduced = 0  # runs that came with any call so far, of this segment or of one before

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
            # Media of any earlier segment may come back, also those that the last one had dropped.
            count = carried_count(needs, runs[kept:], older=self._introduced > kept)
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
        self._introduced += len(runs) + len(call.generated_runs)
        if prompt:
            self.seen = [*prompt, *generated]
        return call

    def _find(self, token_ids: list[int], start: int, name: str, where: Where) -> tuple[Run, ...]:
        """Runs from ``start`` on. Only these tokens are looked at, so a long shared prefix costs nothing."""
        new = token_ids[start:] if start else token_ids
        try:  # a sum is the fastest look at every element that there is
            fits = type(sum(new)) is int
        except TypeError:
            fits = False
        if not fits:
            raise RowError(f"{name} holds something that is no token id", allowed="integers", where=where)
        return list_runs(new, self._ids, shift=start)


def list_runs(token_ids: list[int], media_token_ids: Sequence[int], *, shift: int = 0) -> tuple[Run, ...]:
    """``find_runs`` for a plain list, many times faster: no array is made of it. ``shift`` is added to starts."""
    runs = []
    size = len(token_ids)
    for media_id in set(media_token_ids):
        end = 0
        while end < size:
            try:
                start = token_ids.index(media_id, end)
            except ValueError:
                break
            end = _run_end(token_ids, start, media_id, size)
            runs.append(Run(start + shift, end - start, media_id))
    return tuple(sorted(runs, key=lambda run: run.start)) if len(media_token_ids) > 1 else tuple(runs)


def _run_end(token_ids: list[int], start: int, media_id: int, size: int) -> int:
    """First position after the run, found by comparing slices: doubling steps, then halving ones."""
    end, step = start + 1, 1
    while step:
        grown = end + step
        if grown <= size and token_ids[end:grown] == [media_id] * step:
            end = grown
            step *= 2
        else:
            step //= 2
    return end


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
