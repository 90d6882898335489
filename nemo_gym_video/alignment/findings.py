# SPDX-License-Identifier: Apache-2.0
"""What alignment answers: regions with their place in the tokens, and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym_video.processors.families.base import Grid

FAILURE_KIND = "nemo_gym_video:media_alignment"
"""``failure_kind`` of a sample that is masked because its media and tokens disagree."""

FindingKind = Literal[
    "run_length_mismatch",
    "run_missing",
    "run_unexpected",
    "run_truncated",
    "generated_media_token",
    "prefix_changed",
    "pruned_video",
    "fused_regions",
]
Provenance = Literal["processor", "engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A named disagreement between contract and tokens.

    ``turn`` is the index of the model call; ``item`` and ``region`` count in the contract (None where the finding
    is about no single one). ``expected`` and ``found`` are placeholder tokens, except for ``prefix_changed``:
    positions. ``setting`` names the processor setting that explains it, when one does. ``masks_sample``: training
    on the sample would be wrong.
    """

    kind: FindingKind
    turn: int
    item: int | None
    region: int | None
    expected: int | None
    found: int | None
    message: str
    setting: str | None = None
    masks_sample: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRegion:
    """One region and where the engine put it.

    ``spans`` are half-open [start, end) positions in the ``prompt_token_ids`` of call ``turn``, one a run.
    ``status`` is ``exact``, ``reconciled``, or the kind of the finding about it; ``provenance`` says whose the
    count is. ``grid`` is (height, width) in patches, ``processed_size`` (width, height) in pixels; None is
    unknown, not guessed. ``frames`` is the half-open range of sampled frames covered.
    """

    turn: int
    item: int
    region: int
    run_lengths: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    status: str
    provenance: Provenance
    grid: Grid | None = None
    processed_size: tuple[int, int] | None = None
    frames: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; tuples as lists."""
        return {
            "turn": self.turn,
            "item": self.item,
            "region": self.region,
            "run_lengths": list(self.run_lengths),
            "spans": [list(span) for span in self.spans],
            "status": self.status,
            "provenance": self.provenance,
            "grid": None if self.grid is None else list(self.grid),
            "processed_size": None if self.processed_size is None else list(self.processed_size),
            "frames": None if self.frames is None else list(self.frames),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Regions in token order and findings, of one model call or of a rollout."""

    regions: tuple[AlignedRegion, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def trustworthy(self) -> bool:
        """Whether media and tokens agree well enough to train on."""
        return not any(finding.masks_sample for finding in self.findings)

    @property
    def failure_kind(self) -> str | None:
        """``nemo_gym_video:media_alignment`` for a sample to mask, else None."""
        return None if self.trustworthy else FAILURE_KIND

    @property
    def reason(self) -> str | None:
        """One sentence on why the sample is masked and what to set."""
        masking = [finding for finding in self.findings if finding.masks_sample]
        if not masking:
            return None
        more = f" (and {len(masking) - 1} more)" if len(masking) > 1 else ""
        return f"{masking[0].kind}: {masking[0].message}{more}"

    def joined(self, other: Alignment) -> Alignment:
        """This alignment followed by ``other``."""
        return Alignment(regions=self.regions + other.regions, findings=self.findings + other.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: regions, findings, ``trustworthy``, and for a sample to mask kind and reason."""
        return {
            "regions": [region.to_json() for region in self.regions],
            "findings": [_finding_to_json(finding) for finding in self.findings],
            "trustworthy": self.trustworthy,
            "failure_kind": self.failure_kind,
            "reason": self.reason,
        }


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "turn": finding.turn,
        "item": finding.item,
        "region": finding.region,
        "expected": finding.expected,
        "found": finding.found,
        "message": finding.message,
        "setting": finding.setting,
        "masks_sample": finding.masks_sample,
    }
