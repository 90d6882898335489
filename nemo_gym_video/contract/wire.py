# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON form of a contract (docs/contract.md), strictly: the models say what every field may hold.

The form is compact; reading undoes what ``contract/wire_output.py`` left out, exactly. By hand a contract may be
shorter still: the processor's fields at the top, and bare ``run_lengths`` in place of regions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    FailFast,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    model_validator,
)

from nemo_gym_video.contract.items import CONTRACT_VERSION, ContractItem, ContractProcessor
from nemo_gym_video.errors import ContractError, ProcessorSettingsError, Where
from nemo_gym_video.messages import MediaKind, MediaMode
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.families.base import LARGEST, MAX_FRAMES, ProcessorSettings
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.presets import load_settings, preset_names
from nemo_gym_video.processors.regions import Region
from nemo_gym_video.validation import ClosedModel, problems_of, refusal

FOLDER_FAMILIES = ("hf",)
"""Families whose settings are a folder on one machine."""

_MAX_ITEMS = 10_000
_MAX_FRAMES_IN_ALL = 1_000_000


def index_times(indices: tuple[int, ...] | None, fps: float | None) -> tuple[float, ...] | None:
    """Seconds of frames at ``indices`` in a source of constant ``fps``; None where either is not known."""
    return None if indices is None or fps is None else tuple(index / fps for index in indices)


def _sha256(text: str) -> str:
    head, _, tail = text.partition(":")
    if head != "sha256" or len(tail) != 64 or not set(tail) <= set("0123456789abcdef"):
        raise refusal(allowed="sha256:<64 hex digits>")
    return text


def _known_version(version: int) -> int:
    if version != CONTRACT_VERSION:
        raise refusal(allowed=str(CONTRACT_VERSION))
    return version


Index = Annotated[int, Field(strict=True, ge=0, le=LARGEST)]
Positive = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
FrameCount = Annotated[int, Field(strict=True, ge=1, le=MAX_FRAMES)]
Second = Annotated[float, Field(strict=True, ge=-1e9, lt=1e9)]
Pair = tuple[Positive, Positive]
Digest = Annotated[StrictStr, AfterValidator(_sha256)]
RunLengths = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MAX_FRAMES), FailFast()]


class Progression(ClosedModel):
    """Evenly stepped numbers."""

    start: Index
    step: Index
    count: FrameCount


def _written_out(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    steps = Progression.model_validate(value)
    return tuple(steps.start + steps.step * place for place in range(steps.count))


def _rising(indices: tuple[int, ...]) -> tuple[int, ...]:
    if any(left > right for left, right in itertools.pairwise(indices)):
        raise refusal(allowed="rising frame numbers, or start, step and count")
    return indices


# What a step gives may be larger than what is written as a number.
Indices = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, le=LARGEST * (MAX_FRAMES + 1))], ...],
    Field(max_length=MAX_FRAMES),
    FailFast(),
    BeforeValidator(_written_out),
    AfterValidator(_rising),
]


class RegionForm(ClosedModel):
    """One region, or ``repeat`` equal neighbours; ``frames`` is how many frames each covers."""

    run_lengths: RunLengths
    repeat: FrameCount = 1
    grid: Pair | None = None
    processed_size: Pair | None = None
    frames: FrameCount | None = None


class ItemForm(ClosedModel):
    """One image or video as it is written: see ``ContractItem``."""

    kind: MediaKind
    counted_as: MediaKind | None = None
    source: StrictStr = ""
    digest: Digest | None = None
    size: Pair | None = None
    message: Index | None = None
    part: Index | None = None
    turn: Index | None = None
    frames: FrameCount | None = None
    frame_indices: Indices | None = None
    total_frames: Positive | None = None
    fps: Annotated[float, Field(strict=True, gt=0, lt=1e6)] | None = None
    timestamps: Annotated[tuple[Second, ...], Field(max_length=MAX_FRAMES), FailFast()] | None = None
    decoder: StrictStr | None = None
    regions: Annotated[tuple[RegionForm, ...], Field(max_length=MAX_FRAMES), FailFast()] | None = None
    run_lengths: Annotated[tuple[Positive, ...], Field(max_length=MAX_FRAMES), FailFast()] | None = None

    @property
    def count(self) -> int:
        """Frames that reach the processor."""
        by_runs = len(self.run_lengths or ()) or 1
        return self.frames or (by_runs if self.kind == "video" else 1)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ItemForm:
        if self.kind == "image" and self.count != 1:
            raise refusal(field="frames", got=self.count, allowed="1 for an image")
        if self.kind == "image" and self.counted_as == "video":
            raise refusal(field="counted_as", got="video", allowed="image for an image")
        for name in ("frame_indices", "timestamps"):
            listed = getattr(self, name)
            if listed is not None and len(listed) != self.count:
                raise refusal(field=name, got=len(listed), allowed=f"one entry a frame ({self.count})")
        if self.run_lengths is not None and self.regions is not None:
            raise refusal(field="run_lengths", got="both", allowed="either run_lengths or regions")
        _ = self.placed_regions  # refuses regions that do not cover the item
        return self

    @cached_property
    def placed_regions(self) -> tuple[Region, ...] | None:
        """Every region with the frames it covers, which must be the item's; None where there are none."""
        forms = self.regions if self.run_lengths is None else self._forms_of_runs(self.run_lengths)
        if forms is None:
            return None
        # Without a number, one single region covers the item and several cover a frame each.
        alone = len(forms) == 1 and forms[0].repeat == 1
        covered = [form.frames or (self.count if alone else 1) for form in forms]
        total = sum(form.repeat * frames for form, frames in zip(forms, covered, strict=True))
        if total != self.count:
            raise refusal(
                field="regions", got=f"{total} frames covered", allowed=f"the item's {self.count} frames"
            )
        each = [(form, frames) for form, frames in zip(forms, covered, strict=True) for _ in range(form.repeat)]
        ends = itertools.accumulate(frames for _, frames in each)
        return tuple(
            Region(
                run_lengths=form.run_lengths,
                grid=form.grid,
                processed_size=form.processed_size,
                frames=(end - frames, end),
            )
            for (form, frames), end in zip(each, ends, strict=True)
        )

    def _forms_of_runs(self, lengths: tuple[int, ...]) -> tuple[RegionForm, ...]:
        """Bare run lengths: an image is one region, a video one a run, each over equally many frames."""
        if not lengths:
            return ()
        if self.kind == "image" or len(lengths) == 1:
            return (RegionForm(run_lengths=lengths, frames=self.count),)
        step = -(-self.count // len(lengths))
        return tuple(
            RegionForm(run_lengths=(length,), frames=max(1, min(step, self.count - place * step)))
            for place, length in enumerate(lengths)
        )

    def item(self) -> ContractItem:
        """The item with everything written out."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name != "run_lengths"}
        times = index_times(self.frame_indices, self.fps) if self.timestamps is None else self.timestamps
        given |= {"counted_as": self.counted_as or self.kind, "frames": self.count}
        return ContractItem(**given | {"timestamps": times, "regions": self.placed_regions})


class ProcessorForm(ClosedModel):
    """A processor as it is written: a family or preset by name, its settings, and the engine's state."""

    family: StrictStr
    settings: dict[StrictStr, Any] = Field(default_factory=dict)
    fingerprint: Digest | None = None
    max_model_len: Positive | None = None
    text_tokens: Index = 0
    processor_cache: StrictBool = False
    pruning_rate: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _never_a_rows_folder(self) -> ProcessorForm:
        if self.family in FOLDER_FAMILIES and (self.settings or self.fingerprint is None):
            allowed = f"none, and a fingerprint: {self.family} reads a folder, never a row's"
            raise refusal(field="settings", got=self.settings, allowed=allowed)
        return self

    def processor(self, where: Where | None) -> ContractProcessor:
        """The processor with its settings checked; ``ContractError`` when they do not fit the family."""
        state = CallState(
            max_model_len=self.max_model_len,
            text_tokens=self.text_tokens,
            processor_cache=self.processor_cache,
            pruning_rate=self.pruning_rate,
        )
        if self.family in FOLDER_FAMILIES:
            return ContractProcessor(family=self.family, settings=None, fingerprint=self.fingerprint or "",
                                     state=state)  # fmt: skip
        try:
            settings = _settings(self.family, self.settings)
        except ProcessorSettingsError as error:
            problem = f"contract field processor.settings does not fit: {error}"
            raise ContractError(problem, where=where) from error
        fingerprint = self.fingerprint or settings.fingerprint
        return ContractProcessor(family=settings.family, settings=settings, fingerprint=fingerprint, state=state)


def _settings(family: str, values: Mapping[str, Any]) -> ProcessorSettings:
    kind = FAMILIES.get(family)
    if kind is not None and set(values) == set(kind.keys()):
        return kind(**values)
    # A preset's name only: a folder that a row names is not read.
    names = [name for name in preset_names() if name not in FOLDER_FAMILIES]
    if family not in names:
        raise ProcessorSettingsError(
            "unknown processor", code="processor.unknown", got=family, allowed=", ".join(names)
        )
    return load_settings(family, overrides=values)


class ContractForm(ClosedModel):
    """A whole contract as it is written."""

    version: Annotated[int, Field(strict=True), AfterValidator(_known_version)] = CONTRACT_VERSION
    mode: MediaMode | None = None
    message_digest: Digest | None = None
    processor: ProcessorForm | None = None
    media_token_ids: Annotated[tuple[Index, ...], Field(max_length=MAX_FRAMES), FailFast()] = ()
    items: Annotated[tuple[ItemForm, ...], Field(max_length=_MAX_ITEMS), FailFast()]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ContractForm:
        frames = sum(item.count for item in self.items)
        if frames > _MAX_FRAMES_IN_ALL:
            raise refusal(field="items", got=f"{frames} frames", allowed=f"{_MAX_FRAMES_IN_ALL} in all")
        if self.mode is not None and (self.mode == "none") != (not self.items):
            raise refusal(field="mode", got=self.mode, allowed="none exactly when there are no items")
        return self

    @property
    def media_mode(self) -> MediaMode:
        """The mode, as written or as the items say."""
        if self.mode is not None:
            return self.mode
        if any(item.kind == "video" for item in self.items):
            return "native_video"
        return "images" if self.items else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContract:
    """What a contract says, written out: the fields of ``RowContract``."""

    mode: MediaMode
    items: tuple[ContractItem, ...]
    message_digest: str | None
    processor: ContractProcessor | None
    media_token_ids: tuple[int, ...]


def read_contract(value: object, *, where: Where | None = None) -> ReadContract:
    """Read a contract; ``ContractError`` names the first field that does not fit."""
    try:
        form = ContractForm.model_validate(_lifted(value))
    except ValidationError as error:
        raise _contract_error(error, where) from error
    processor = None if form.processor is None else form.processor.processor(where)
    ids = form.media_token_ids
    if not ids and processor is not None and processor.settings is not None:
        ids = processor.settings.media_token_ids
    return ReadContract(
        mode=form.media_mode,
        items=tuple(item.item() for item in form.items),
        message_digest=form.message_digest,
        processor=processor,
        media_token_ids=ids,
    )


def _contract_error(error: ValidationError, where: Where | None) -> ContractError:
    problem = problems_of(error, root="(all)")[0]
    path = problem.field or "(all)"
    said = problem.sentence.removeprefix(path.rpartition(".")[2]).strip()
    return ContractError(f"contract field {path} {said}", got=problem.got, allowed=problem.allowed, where=where)


def _lifted(value: object) -> object:
    """By hand the processor's fields may stand at the top, as in a count request; move them where they belong."""
    if not isinstance(value, Mapping) or "processor" in value or "family" not in value:
        return value
    processor = {name: value[name] for name in ProcessorForm.model_fields if name in value}
    return {name: entry for name, entry in value.items() if name not in processor} | {"processor": processor}
