# SPDX-License-Identifier: Apache-2.0
"""Judges the runs that one item got: exact, reconciled, or which finding.

The policy: a video must match exactly; an image takes the engine's count, and a grid only when the family's own
rule yields that count with one grid; nothing is sliced, padded or guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nemo_gym_video.tokens.counts import grid_for_count
from nemo_gym_video.tokens.families.base import ProcessorSettings
from nemo_gym_video.tokens.findings import AlignedRegion, Alignment, Finding, FindingKind
from nemo_gym_video.tokens.hints import Hint, explain
from nemo_gym_video.tokens.predict import CallState
from nemo_gym_video.tokens.runs import Run
from nemo_gym_video.tokens.types import MediaKind, MediaSize, Region

# More differing tubelets than this are one finding on the whole video.
_MANY = 4


class AlignedItem(Protocol):
    """What alignment reads of a contract's item; see ``ContractItem``."""

    @property
    def kind(self) -> MediaKind:
        """Image or video."""

    @property
    def counted_as(self) -> MediaKind:
        """What the processor sees of it."""

    @property
    def source(self) -> str:
        """Its name in findings."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Displayed (width, height)."""

    @property
    def frames(self) -> int:
        """Frames that reach the processor."""

    @property
    def turn(self) -> int | None:
        """The call that shows it first."""

    @property
    def regions(self) -> tuple[Region, ...] | None:
        """Predicted regions."""

    @property
    def media_sizes(self) -> tuple[MediaSize, ...]:
        """What the processor is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges items of one model call (``turn``), whose prompt has ``prompt_length`` tokens."""

    turn: int
    prompt_length: int
    settings: ProcessorSettings | None
    state: CallState

    def judge(self, number: int, item: AlignedItem, runs: Sequence[Run]) -> Alignment:
        """The regions and findings of item ``number``."""
        if item.regions is None:
            return self._unpredicted(number, item, runs)
        expected = [length for region in item.regions for length in region.run_lengths]
        found = [run.length for run in runs]
        if found == expected:
            return Alignment(
                regions=tuple(
                    self._region(number, place, region, part, "exact")
                    for place, (region, part) in enumerate(_split(item.regions, runs))
                )
            )
        if not runs:
            finding = self._finding(
                "run_missing",
                number,
                item,
                None,
                expected,
                found,
                "no placeholder tokens for it in "
                "the prompt: the engine never saw this media, or the chat template dropped it",
            )
            return Alignment(findings=(finding,))
        cut = self._cut(expected, runs)
        if cut is not None:
            return self._whole(number, item, runs, "run_truncated", cut)
        if len(found) != len(expected):
            return self._other_number(number, item, runs, expected)
        if item.counted_as == "image":
            return self._reconciled(number, item, runs)
        return self._video_lengths(number, item, runs, expected)

    def changed(self, number: int, item: AlignedItem, before: Sequence[int], found: Sequence[int]) -> Finding:
        """The finding on an item whose tokens changed between two calls."""
        return Finding(
            kind="run_length_mismatch",
            turn=self.turn,
            item=number,
            region=None,
            expected=sum(before),
            found=sum(found),
            message=(
                f"item {number} ({describe(item)}): {count_words(before)} in an earlier call, "
                f"{count_words(found)} now; the engine budgets all images of a call together: keep its processor "
                "cache on, or raise max_model_len"
            ),
        )

    # The cases

    def _unpredicted(self, number: int, item: AlignedItem, runs: Sequence[Run]) -> Alignment:
        """Nothing to compare with: the engine's count is the count."""
        if not runs:
            finding = self._finding(
                "run_missing",
                number,
                item,
                None,
                [],
                [],
                "no placeholder tokens for it in the "
                "prompt: the engine never saw this media, or the chat template dropped it",
            )
            return Alignment(findings=(finding,))
        regions = tuple(
            AlignedRegion(turn=self.turn, item=number, region=place, run_lengths=(run.length,),
                          spans=((run.start, run.end),), status="reconciled", provenance="engine")
            for place, run in enumerate(runs)
        )  # fmt: skip
        return Alignment(regions=regions)

    def _cut(self, expected: list[int], runs: Sequence[Run]) -> str | None:
        """How the item was cut off by the end or beginning of the prompt, if it was."""
        found = [run.length for run in runs]
        count = len(found)
        if count > len(expected):
            return None
        at_end = runs[-1].end == self.prompt_length and found[:-1] == expected[: count - 1]
        if at_end and (
            found[-1] < expected[count - 1] or (found[-1] == expected[count - 1] and count < len(expected))
        ):
            return (
                "the prompt ends inside it: raise max_model_len, or drop the turn; never cut a prompt inside media"
            )
        first = len(expected) - count
        at_start = runs[0].start == 0 and found[1:] == expected[first + 1 :]
        if at_start and (found[0] < expected[first] or (found[0] == expected[first] and count < len(expected))):
            return "the prompt begins inside it: it was truncated from the left; raise max_model_len"
        return None

    def _other_number(self, number: int, item: AlignedItem, runs: Sequence[Run], expected: list[int]) -> Alignment:
        """Another number of runs than predicted."""
        found = [run.length for run in runs]
        if item.kind == "video" and len(found) == 1 and found[0] < sum(expected):
            return self._whole(
                number,
                item,
                runs,
                "pruned_video",
                "all its tokens are in one run: the engine prunes videos; start it without --video-pruning-rate",
            )
        if found == expected[: len(found)]:
            return self._whole(
                number, item, runs, "run_missing", f"{len(found)} of {len(expected)} runs are there"
            )
        if found[: len(expected)] == expected:
            return self._whole(number, item, runs, "run_unexpected", f"{len(found)} runs for {len(expected)}")
        return self._whole(number, item, runs, "run_length_mismatch", "")

    def _video_lengths(
        self, number: int, item: AlignedItem, runs: Sequence[Run], expected: list[int]
    ) -> Alignment:
        assert item.regions is not None
        if len(runs) == 1 and self.state.pruning_rate > 0 and runs[0].length < expected[0]:
            return self._whole(
                number,
                item,
                runs,
                "pruned_video",
                "the engine prunes videos; start it without --video-pruning-rate",
            )
        shares = list(_split(item.regions, runs))
        wrong = {
            place: tuple(run.length for run in part)
            for place, (region, part) in enumerate(shares)
            if tuple(run.length for run in part) != region.run_lengths
        }
        if len(wrong) == len(item.regions) or len(wrong) > _MANY:
            return self._whole(number, item, runs, "run_length_mismatch", "")
        why = "a setting would change every tubelet alike, so its tokens were edited on the way"
        return Alignment(
            regions=tuple(
                self._region(number, place, region, part, "run_length_mismatch" if place in wrong else "exact")
                for place, (region, part) in enumerate(shares)
            ),
            findings=tuple(
                self._finding(
                    "run_length_mismatch", number, item, place, item.regions[place].run_lengths, found, why
                )
                for place, found in wrong.items()
            ),
        )

    def _reconciled(self, number: int, item: AlignedItem, runs: Sequence[Run]) -> Alignment:
        """Every region takes the engine's count, with a grid if the family's rule allows just one."""
        assert item.regions is not None
        regions: list[AlignedRegion] = []
        findings: list[Finding] = []
        for place, (region, part) in enumerate(_split(item.regions, runs)):
            lengths = tuple(run.length for run in part)
            if lengths == region.run_lengths:
                regions.append(self._region(number, place, region, part, "exact"))
                continue
            grid = self._grid(item, sum(lengths))
            engine = Region(run_lengths=lengths, grid=grid[0] if grid else None,
                            processed_size=grid[1] if grid else None, frames=region.frames)  # fmt: skip
            regions.append(self._region(number, place, engine, part, "reconciled"))
            if grid is None:
                why = "no single patch grid gives that count"
                if self.settings is None:
                    why = "the contract has no processor settings to derive its patch grid from"
                findings.append(
                    self._finding("run_length_mismatch", number, item, place, region.run_lengths, lengths, why)
                )
        return Alignment(regions=tuple(regions), findings=tuple(findings))

    def _whole(
        self, number: int, item: AlignedItem, runs: Sequence[Run], kind: FindingKind, why: str
    ) -> Alignment:
        """One finding on the whole item; its regions get the runs they would have by position."""
        assert item.regions is not None
        expected = [length for region in item.regions for length in region.run_lengths]
        region = 0 if len(item.regions) == 1 else None
        finding = self._finding(kind, number, item, region, expected, [run.length for run in runs], why)
        regions = tuple(
            self._region(number, place, region, part, kind)
            for place, (region, part) in enumerate(_split(item.regions, runs))
        )
        return Alignment(regions=regions, findings=(finding,))

    # The parts

    def _grid(self, item: AlignedItem, count: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
        if self.settings is None or item.size is None:
            return None
        return grid_for_count(self.settings, MediaSize("image", *item.size), count)

    def _region(self, number: int, place: int, region: Region, runs: Sequence[Run], status: str) -> AlignedRegion:
        known = status in ("exact", "reconciled")
        return AlignedRegion(
            turn=self.turn,
            item=number,
            region=place,
            run_lengths=tuple(run.length for run in runs),
            spans=tuple((run.start, run.end) for run in runs),
            status=status,
            provenance="processor" if status == "exact" else "engine",
            grid=region.grid if known else None,
            processed_size=region.processed_size if known else None,
            frames=region.frames,
        )

    def _finding(
        self, kind: FindingKind, number: int, item: AlignedItem, region: int | None,
        expected: Sequence[int], found: Sequence[int], why: str,
    ) -> Finding:  # fmt: skip
        hint = self._hint(kind, item, found) if region is None or len(item.regions or ()) == 1 else None
        what = f"item {number} ({describe(item)})" + (
            "" if region is None or len(item.regions or ()) == 1 else f", region {region}"
        )
        sentence = f"{what}: {count_words(found)} found"
        if item.regions is not None:
            sentence += f", {count_words(expected)} expected"
        reasons = [reason for reason in (why, "" if hint is None else str(hint)) if reason]
        if kind in ("run_length_mismatch", "run_unexpected") and not reasons:
            reasons = [
                "no single setting explains it: compare the engine's processor settings and frame sampling with "
                "the contract's (gym-video settings diff)"
            ]
        return Finding(
            kind=kind,
            turn=self.turn,
            item=number,
            region=region,
            expected=sum(expected) if item.regions is not None else None,
            found=sum(found),
            message="; ".join([sentence, *reasons]),
            setting=None if hint is None else hint.setting,
        )

    def _hint(self, kind: FindingKind, item: AlignedItem, found: Sequence[int]) -> Hint | None:
        if self.settings is None or item.size is None or not found or kind in ("pruned_video", "run_truncated"):
            return None
        return explain(self.settings, item.media_sizes, self.state, found)


def _split(regions: Sequence[Region], runs: Sequence[Run]) -> Iterator[tuple[Region, Sequence[Run]]]:
    """Each region with its runs by position; a last region takes what is over, missing runs are none."""
    place = 0
    for number, region in enumerate(regions):
        count = len(region.run_lengths)
        last = number == len(regions) - 1
        yield region, runs[place:] if last else runs[place : place + count]
        place += count


def describe(item: AlignedItem) -> str:
    """``video a.mp4, 64 frames of 1920x1080``."""
    name = f"{item.kind} {item.source}".strip()
    size = "unknown size" if item.size is None else f"{item.size[0]}x{item.size[1]}"
    return f"{name}, {item.frames} frames of {size}" if item.kind == "video" else f"{name}, {size}"


def count_words(lengths: Sequence[int]) -> str:
    """``8064 tokens (32 runs of 252)``."""
    if not lengths:
        return "0 tokens"
    kinds = sorted(set(lengths))
    runs = "1 run" if len(lengths) == 1 else f"{len(lengths)} runs"
    if len(lengths) > 1:
        runs += f" of {kinds[0]}" if len(kinds) == 1 else f" of {kinds[0]} to {kinds[-1]}"
    return f"{sum(lengths)} tokens ({runs})"
