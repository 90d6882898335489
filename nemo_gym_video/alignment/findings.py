# SPDX-License-Identifier: Apache-2.0
"""What alignment answers: regions with their place in the tokens, and findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym_video.errors import AlignmentError
from nemo_gym_video.processors.families.base import Grid

FAILURE_KIND = "nemo_gym_video:media_alignment"
"""``failure_kind`` of a sample that is masked because its media and tokens disagree."""

FindingKind = Literal[
    "run_length_mismatch",
    "run_doubled",
    "run_missing",
    "run_unexpected",
    "run_truncated",
    "pruned_video",
    "fused_regions",
    "runs_ambiguous",
    "prefix_changed",
    "generated_media_token",
    "contract_mismatch",
    "media_shadowed",
    "prompt_token_ids_missing",
    "media_token_ids_unknown",
]
Provenance = Literal["processor", "engine"]


@dataclass(frozen=True, slots=True)
class FindingRule:
    """What a kind of finding means, whether it masks its sample, and what to do.

    ``unless`` says when it masks the other way; the finding itself always says (``masks_sample``).
    """

    meaning: str
    masks: bool
    remedy: str
    unless: str = ""


FINDINGS: Mapping[FindingKind, FindingRule] = {
    "run_length_mismatch": FindingRule(
        "a video, or an image without a single patch grid, has another count than the contract says; or an item "
        "has other counts in two calls", True,
        "set the setting that the message names alike on both sides (`gym-video settings diff`)"),
    "run_doubled": FindingRule(
        "an item has twice its tokens, or as many squared: ids that were expanded already were expanded again",
        True,
        "send the engine compact ids, one placeholder a media item"),
    "run_missing": FindingRule(
        "an item, or some of its runs, has no placeholders in the prompt: the model was blind", True,
        "check the chat template, the engine's media limits per prompt, and frame sampling"),
    "run_unexpected": FindingRule(
        "placeholders that belong to no media", True,
        "look for a literal placeholder in the text, media that the rollout does not list, or more frames than "
        "contracted"),
    "run_truncated": FindingRule(
        "the prompt ends or begins inside an item", True, "raise `max_model_len` or drop the turn"),
    "pruned_video": FindingRule(
        "all of a video's tokens are in one run", True, "start the engine without `--video-pruning-rate`"),
    "fused_regions": FindingRule(
        "one run holds several regions: their wrappers were lost on the way", True,
        "check the chat template", unless="in a family without wrappers, where it is harmless"),
    "runs_ambiguous": FindingRule(
        "nobody can tell which runs are whose: the number of runs of several items is unknown", True,
        "carry a contract, or name the processor"),
    "prefix_changed": FindingRule(
        "a prompt does not extend the tokens before it: a new segment begins (compaction, a retry, re-rendered "
        "text)", True,
        "send back recorded ids and keep the processor cache on; or train the segments apart"),
    "generated_media_token": FindingRule(
        "the model wrote a placeholder itself; it is text, not media", False,
        "count placeholders in prompt positions only (`NemoRlTurn.loss_mask`)"),
    "contract_mismatch": FindingRule(
        "the contract is about other media than the messages", True,
        "prepare the row again, or drop the contract"),
    "media_shadowed": FindingRule(
        "the first prompt held media of a record that a better one shadows", False,
        "the agent should put all of it into one record"),
    "prompt_token_ids_missing": FindingRule(
        "a turn has generated tokens but no prompt tokens", False, "ask the model server for both"),
    "media_token_ids_unknown": FindingRule(
        "nobody said which ids are placeholders, so nothing was compared", False,
        "carry a contract, or give `--media-token-id`",
        unless="the contract predicts counts: then they could not be checked"),
}  # fmt: skip
"""Every kind of finding. ``docs/findings.md`` is this table."""

FORMER_KINDS: Mapping[str, FindingKind] = {"media_without_run": "run_missing"}
"""Kinds that rollouts of earlier versions hold, and their name now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A named disagreement between media and tokens.

    ``turn`` is the index of the model call; ``item`` and ``region`` count the rollout's media in prompt order, as
    the contract does (None where the finding is about no single one). ``expected`` and ``found`` are placeholder
    tokens; for ``prefix_changed`` positions, for ``runs_ambiguous`` runs, for ``contract_mismatch`` items.
    ``setting`` names the processor setting that explains it, when one does. ``masks_sample``: training on the
    sample would be wrong; as ``FINDINGS`` says unless given.

    >>> from nemo_gym_video import Finding
    >>> lost = Finding(kind="run_missing", message="picture 0 has no placeholders", turn=0, item=0, region=None,
    ...                expected=256, found=0)
    >>> lost.masks_sample
    True
    """

    kind: FindingKind
    message: str
    turn: int | None = None
    item: int | None = None
    region: int | None = None
    expected: int | None = None
    found: int | None = None
    setting: str | None = None
    masks_sample: bool | None = None

    def __post_init__(self) -> None:
        """Fill in whether the kind masks."""
        if self.masks_sample is None:
            object.__setattr__(self, "masks_sample", FINDINGS[self.kind].masks)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, every field by its name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Finding:
        """Read ``to_json``'s form, and that of earlier versions with their names.

        Raises:
            AlignmentError: the kind is unknown.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        known = {name: entry for name, entry in value.items() if name in names}
        given = known.get("kind")
        kind = FORMER_KINDS.get(given, given) if isinstance(given, str) else None
        if kind not in FINDINGS:
            raise AlignmentError("unknown kind of finding", got=given, allowed=", ".join(FINDINGS))
        return cls(**known | {"kind": kind, "message": str(known.get("message", ""))})


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
    """Regions in token order and findings, of one model call or of a rollout.

    >>> from nemo_gym_video import Alignment
    >>> Alignment().trustworthy
    True
    """

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
            "findings": [finding.to_json() for finding in self.findings],
            "trustworthy": self.trustworthy,
            "failure_kind": self.failure_kind,
            "reason": self.reason,
        }
