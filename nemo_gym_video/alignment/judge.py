# SPDX-License-Identifier: Apache-2.0
"""Judges the runs that one item got: exact, reconciled, or which finding.

The policy: a video must match exactly; an image takes the engine's count, and a grid only when the family's own
rule yields that count with one grid; nothing is sliced, padded or guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nemo_gym_video.alignment.findings import AlignedRegion, Alignment, Finding, FindingKind
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.contract import ContractItem
from nemo_gym_video.processors.counts import grid_for_count
from nemo_gym_video.processors.families.base import Grid, ProcessorSettings
from nemo_gym_video.processors.hints import Hint, explain
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.regions import MediaSize, Region

# More differing tubelets than this are one finding on the whole video.
_MANY = 4
_NAME_LIMIT = 120

_NEVER_SEEN = (
    "no placeholder tokens for it in the prompt: the engine never saw this media, or the chat template dropped it"
)
_CUT_RIGHT = (
    "the prompt ends inside it, after {} tokens: raise max_model_len, or drop the turn; never cut a prompt inside "
    "media"
)
_CUT_LEFT = "the prompt begins inside it: it was truncated from the left; raise max_model_len"
_DOUBLED = (
    "ids that were expanded already were expanded again: send the engine compact ids, one placeholder a media item"
)
_OTHER_RUNS = "it takes another number of runs with this processor"
_PRUNED = "the engine prunes videos; start it without --video-pruning-rate"
_EDITED = "a setting would change every tubelet alike, so its tokens were edited on the way"
_NO_SETTINGS = "the contract has no processor settings to derive its patch grid from"
_UNEXPLAINED = (
    "no single setting explains it: compare the engine's processor settings and frame sampling with the "
    "contract's (gym-video settings diff)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Item ``number`` of the contract, and the runs it got.

    ``count`` is the number of runs it should have, for an item whose lengths nobody predicted.
    """

    number: int
    item: ContractItem
    runs: Sequence[Run]
    count: int | None = None

    @property
    def regions(self) -> tuple[Region, ...]:
        """The predicted regions; none where nothing was predicted."""
        return self.item.regions or ()

    @property
    def expected(self) -> list[int]:
        """Predicted run lengths in order."""
        return [length for region in self.regions for length in region.run_lengths]

    @property
    def found(self) -> list[int]:
        """Run lengths that the engine gave."""
        return [run.length for run in self.runs]

    def parts(self) -> Iterator[tuple[Region, tuple[Run, ...]]]:
        """Each region with its runs by position; the last takes what is over, and missing runs are none."""
        place = 0
        for number, region in enumerate(self.regions):
            end = place + len(region.run_lengths) if number < len(self.regions) - 1 else len(self.runs)
            yield region, tuple(self.runs[place:end])
            place = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges items of one model call (``turn``), whose prompt has ``prompt_length`` tokens."""

    turn: int
    prompt_length: int
    settings: ProcessorSettings | None
    state: CallState

    def judge(self, share: Share) -> Alignment:
        """The regions and findings of one item."""
        if not share.runs:
            region = 0 if len(share.regions) == 1 else None
            return Alignment(
                findings=(self._finding("run_missing", share, region, share.expected, [], _NEVER_SEEN),)
            )
        if share.item.regions is None:
            return self._unpredicted(share)
        if share.found == share.expected:
            return Alignment(regions=self._regions(share, "exact"))
        cut = self._cut(share)
        if cut is not None:
            return self._whole(share, "run_truncated", cut)
        if _doubled(share.found, share.expected) and not self._explained(share):
            return self._whole(share, "run_doubled", _DOUBLED)
        if len(share.found) != len(share.expected):
            return self._other_number(share)
        if share.item.counted_as == "image":
            return self._reconciled(share)
        return self._video_lengths(share)

    def changed(self, number: int, item: ContractItem, before: Sequence[int], found: Sequence[int]) -> Finding:
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

    def _unpredicted(self, share: Share) -> Alignment:
        """Nothing to compare with: the engine's count is the count."""
        regions = tuple(
            AlignedRegion(turn=self.turn, item=share.number, region=place, run_lengths=(run.length,),
                          spans=((run.start, run.end),), status="reconciled", provenance="engine")
            for place, run in enumerate(share.runs)
        )  # fmt: skip
        if share.count in (None, len(share.runs)):
            return Alignment(regions=regions)
        why = f"{_OTHER_RUNS}: {share.count}"
        finding = self._finding("run_length_mismatch", share, None, (), share.found, why)
        return Alignment(regions=regions, findings=(finding,))

    def _cut(self, share: Share) -> str | None:
        """How the item was cut off by the end or beginning of the prompt, if it was."""
        expected, found = share.expected, share.found
        count = len(found)
        if count > len(expected):
            return None
        if share.runs[-1].end == self.prompt_length and found[:-1] == expected[: count - 1]:
            whole = count < len(expected) and found[-1] == expected[count - 1]
            if whole or found[-1] < expected[count - 1]:
                return _CUT_RIGHT.format(self.prompt_length)
        first = len(expected) - count
        if share.runs[0].start == 0 and found[1:] == expected[first + 1 :]:
            whole = count < len(expected) and found[0] == expected[first]
            if whole or found[0] < expected[first]:
                return _CUT_LEFT
        return None

    def _other_number(self, share: Share) -> Alignment:
        """Another number of runs than predicted."""
        expected, found = share.expected, share.found
        if share.item.kind == "video" and len(found) == 1 and found[0] < sum(expected):
            return self._whole(share, "pruned_video", f"all its tokens are in one run: {_PRUNED}")
        if found == expected[: len(found)]:
            absent = [place for place, (_, runs) in enumerate(share.parts()) if not runs]
            if len(absent) == 1:
                return self._one_missing(share, absent[0])
            return self._whole(share, "run_missing", f"{len(found)} of {len(expected)} runs are there")
        if found[: len(expected)] == expected:
            return self._whole(share, "run_unexpected", f"{len(found)} runs for {len(expected)}")
        return self._whole(share, "run_length_mismatch", "")

    def _one_missing(self, share: Share, place: int) -> Alignment:
        why = f"{len(share.found)} of {len(share.expected)} runs are there"
        lengths = share.regions[place].run_lengths
        hint = self._hint("run_missing", share)
        finding = self._finding("run_missing", share, place, lengths, [], why, hint=hint)
        return Alignment(regions=self._regions(share, "run_missing"), findings=(finding,))

    def _video_lengths(self, share: Share) -> Alignment:
        if len(share.runs) == 1 and self.state.pruning_rate > 0 and share.found[0] < share.expected[0]:
            return self._whole(share, "pruned_video", _PRUNED)
        wrong = {
            place: [run.length for run in runs]
            for place, (region, runs) in enumerate(share.parts())
            if _lengths(runs) != region.run_lengths
        }
        if len(wrong) == len(share.regions) or len(wrong) > _MANY:
            return self._whole(share, "run_length_mismatch", "")
        findings = tuple(
            self._finding("run_length_mismatch", share, place, share.regions[place].run_lengths, found, _EDITED)
            for place, found in wrong.items()
        )
        return Alignment(regions=self._regions(share, "run_length_mismatch"), findings=findings)

    def _reconciled(self, share: Share) -> Alignment:
        """Every region takes the engine's count, with a grid if the family's rule allows just one."""
        regions: list[AlignedRegion] = []
        findings: list[Finding] = []
        for place, (region, runs) in enumerate(share.parts()):
            lengths = _lengths(runs)
            if lengths == region.run_lengths:
                regions.append(self._region(share, place, region, runs, "exact"))
                continue
            grid, size = self._grid(share.item, sum(lengths))
            engine = Region(run_lengths=lengths, grid=grid, processed_size=size, frames=region.frames)
            regions.append(self._region(share, place, engine, runs, "reconciled"))
            if grid is None:
                why = _NO_SETTINGS if self.settings is None else "no single patch grid gives that count"
                hint = self._hint("run_length_mismatch", share) if len(share.regions) == 1 else None
                finding = self._finding(
                    "run_length_mismatch", share, place, region.run_lengths, lengths, why, hint=hint
                )
                findings.append(finding)
        return Alignment(regions=tuple(regions), findings=tuple(findings))

    def _whole(self, share: Share, kind: FindingKind, why: str) -> Alignment:
        """One finding on the whole item."""
        region = 0 if len(share.regions) == 1 else None
        hint = self._hint(kind, share)
        if not why and hint is None:
            why = _UNEXPLAINED
        finding = self._finding(kind, share, region, share.expected, share.found, why, hint=hint)
        return Alignment(regions=self._regions(share, kind), findings=(finding,))

    # The parts

    def _explained(self, share: Share) -> bool:
        """Whether the engine's count of a still is one that its family's rule gives."""
        return (
            len(share.found) == 1
            and share.item.kind == "image"
            and self._grid(share.item, share.found[0])[0] is not None
        )

    def _grid(self, item: ContractItem, count: int) -> tuple[Grid, Grid] | tuple[None, None]:
        if self.settings is None or item.size is None:
            return None, None
        return grid_for_count(self.settings, MediaSize("image", *item.size), count) or (None, None)

    def _regions(self, share: Share, status: str) -> tuple[AlignedRegion, ...]:
        """All regions with their runs by position; ``status`` holds for those that are not exact."""
        return tuple(
            self._region(share, place, region, runs, "exact" if _lengths(runs) == region.run_lengths else status)
            for place, (region, runs) in enumerate(share.parts())
        )

    def _region(self, share: Share, place: int, region: Region, runs: Sequence[Run], status: str) -> AlignedRegion:
        known = status in ("exact", "reconciled")
        return AlignedRegion(
            turn=self.turn,
            item=share.number,
            region=place,
            run_lengths=_lengths(runs),
            spans=tuple((run.start, run.end) for run in runs),
            status=status,
            provenance="processor" if status == "exact" else "engine",
            grid=region.grid if known else None,
            processed_size=region.processed_size if known else None,
            frames=region.frames,
        )

    def _finding(
        self,
        kind: FindingKind,
        share: Share,
        region: int | None,
        expected: Sequence[int],
        found: Sequence[int],
        why: str,
        *,
        hint: Hint | None = None,
    ) -> Finding:
        sentence = f"item {share.number} ({describe(share.item)})"
        if region is not None and len(share.regions) > 1:
            sentence += f", region {region}"
        sentence += f": {count_words(found)} found"
        predicted = share.item.regions is not None
        if predicted:
            sentence += f", {count_words(expected)} expected"
        return Finding(
            kind=kind,
            turn=self.turn,
            item=share.number,
            region=region,
            expected=sum(expected) if predicted else None,
            found=sum(found),
            message="; ".join(text for text in (sentence, why, str(hint or "")) if text),
            setting=None if hint is None else hint.setting,
        )

    def _hint(self, kind: FindingKind, share: Share) -> Hint | None:
        if (
            self.settings is None
            or share.item.size is None
            or kind in ("pruned_video", "run_truncated", "run_doubled")
        ):
            return None
        return explain(self.settings, share.item.media_sizes, self.state, share.found)


def _doubled(found: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether every run, or all of a single item's together, is what expanding ``expected`` a second time gives.

    An expander puts n placeholders in the place of one (2n - 1), or in that of each (n * n), or adds them (2n).
    """
    return len(found) == len(expected) and all(
        run in (2 * length - 1, 2 * length, length * length) and length > 1
        for run, length in zip(found, expected, strict=True)
    )


def _lengths(runs: Sequence[Run]) -> tuple[int, ...]:
    return tuple(run.length for run in runs)


def describe(item: ContractItem) -> str:
    """``video a.mp4, 64 frames of 1920x1080``."""
    source = " ".join(item.source.split())
    name = f"{item.kind} {source[:_NAME_LIMIT]}{'…' if len(source) > _NAME_LIMIT else ''}".strip()
    size = "unknown size" if item.size is None else f"{item.size[0]}x{item.size[1]}"
    if item.size is None and item.regions is None:
        return name
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
