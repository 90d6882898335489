# SPDX-License-Identifier: Apache-2.0
"""A tracking row, checked when it is read: one model for loading, verifying and ``gym-video validate``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypedDict, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    SkipValidation,
    StrictBool,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import iter_media_parts
from nemo_gym_video.tasks.tracking.masks import GRID, RleMask
from nemo_gym_video.tasks.tracking.schema import TASKS, Task
from nemo_gym_video.validation import carried, raise_all, refusal, row_errors

MAX_OBJECTS = 100
"""Objects a row may have; bounds the work on an answer that invents ids."""

_SAFE_INTEGER = 1 << 53


class CocoMask(TypedDict):
    """A COCO RLE mask: column-major, ``counts`` a compressed string or run lengths that sum to height * width."""

    size: Annotated[list[int], Field(min_length=2, max_length=2, description="[height, width] in pixels.")]
    counts: str | list[int]


def _integer(value: object) -> int:
    """``value`` as an integer when it is one (1.0 is) and small enough to be a number of anything."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _SAFE_INTEGER:
        raise refusal(allowed="an integer")
    return value


def _ordered(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    if not (box[0] < box[2] and box[1] < box[3]):
        raise refusal("box is empty or turned round", allowed="x1 < x2 and y1 < y2")
    return box


def _read_mask(value: object) -> RleMask:
    if not isinstance(value, Mapping):
        raise refusal(allowed='{"size", "counts"}')
    try:
        mask = RleMask.from_coco(value.get("size"), value.get("counts"))
    except RowError as error:
        raise carried(error) from error
    if mask.area == 0:
        raise refusal("visible target has an empty mask")
    return mask


Integer = Annotated[int, BeforeValidator(_integer)]
FrameNumber = Annotated[Integer, Field(ge=0)]
GridNumber = Annotated[float, Field(ge=0, le=GRID, strict=True, allow_inf_nan=False)]
Point = tuple[GridNumber, GridNumber]
Box = Annotated[tuple[GridNumber, GridNumber, GridNumber, GridNumber], AfterValidator(_ordered)]
Mask = Annotated[RleMask, PlainValidator(_read_mask, json_schema_input_type=CocoMask)]


class TrackTarget(BaseModel):
    """What is true of one object on one asked frame. Grid coordinates; ``mask`` in pixels of the frame."""

    model_config = ConfigDict(frozen=True)

    frame: FrameNumber
    visible: StrictBool
    xy: Point | None = Field(default=None, description="An interior point, where visible.")
    bbox: Box | None = Field(default=None, description="[x1, y1, x2, y2], where visible; needed for box.")
    mask: Mask | None = Field(default=None, description="Needed for pt and ref, where visible.")

    @model_validator(mode="before")
    @classmethod
    def _only_what_counts(cls, value: object, info: ValidationInfo) -> object:
        """Without what the row's task does not look at: any location of an absent object, the mask for box."""
        if not isinstance(value, Mapping):
            return value
        if value.get("visible") is False:
            return {name: value[name] for name in ("frame", "visible") if name in value}
        if _task(info) == "box" and "mask" in value:
            return {name: entry for name, entry in value.items() if name != "mask"}
        return value

    @model_validator(mode="after")
    def _has_what_its_task_needs(self, info: ValidationInfo) -> TrackTarget:
        task = _task(info)
        if task == "ref" and self.frame < 1:
            raise refusal(field="frame", got=self.frame, allowed="frame numbers from 1 for ref")
        if self.visible and task is not None:
            needed = "bbox" if task == "box" else "mask"
            if getattr(self, needed) is None:
                allowed = "[x1, y1, x2, y2]" if task == "box" else '{"size", "counts"}'
                raise refusal(f"visible target has no {needed}", field=needed, got=None, allowed=allowed)
        return self


def _frames_once(targets: tuple[TrackTarget, ...]) -> tuple[TrackTarget, ...]:
    _each_once((target.frame for target in targets), "target frame repeats", "frame")
    return targets


class TrackObject(BaseModel):
    """One object to follow: where it was shown (not for ref), and its targets in the row's order."""

    model_config = ConfigDict(frozen=True)

    id: Integer
    targets: Annotated[tuple[TrackTarget, ...], Field(min_length=1), AfterValidator(_frames_once)]
    reference_frame: FrameNumber | None = None
    reference_xy: Point | None = None
    reference_bbox: Box | None = None

    @field_validator("reference_frame", mode="before")
    @classmethod
    def _not_for_ref(cls, value: object, info: ValidationInfo) -> object:
        return None if _task(info) == "ref" else value


_OBJECTS = TypeAdapter(Annotated[tuple[TrackObject, ...], Field(min_length=1)])


class TrackRow(BaseModel):
    """A tracking question's truth. ``absence_score`` is the row's own, or ``None``."""

    model_config = ConfigDict(frozen=True)

    task: Task
    coordinate_space: Literal["grid1000"] | None = "grid1000"
    absence_score: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        default=None, description="What an absent object answered absent earns; overrides the server's."
    )
    reference_frame: FrameNumber | None = Field(
        default=None, description="Where every object was shown that does not say it itself."
    )
    objects: tuple[TrackObject, ...] = Field(min_length=1, max_length=MAX_OBJECTS)
    metadata: SkipValidation[dict[str, Any] | None] = Field(
        default=None, description="Where the row comes from.", repr=False
    )

    @property
    def cells(self) -> int:
        """Number of (object, target frame) pairs."""
        return sum(len(item.targets) for item in self.objects)

    @classmethod
    def from_row(cls, row: object, where: Where | None = None) -> TrackRow:
        """Read the top-level fields of a row; the rest of it may hold anything.

        Raises:
            RowError: the first problem of the row.
        """
        try:
            return cls.model_validate(row)
        except ValidationError as error:
            raise row_errors(error, where)[0] from error

    @field_validator("reference_frame", mode="before")
    @classmethod
    def _not_for_ref(cls, value: object, info: ValidationInfo) -> object:
        return None if info.data.get("task") == "ref" else value

    @field_validator("objects", mode="plain", json_schema_input_type=Annotated[
        tuple[TrackObject, ...], Field(min_length=1, max_length=MAX_OBJECTS)
    ])  # fmt: skip
    @classmethod
    def _objects_of_the_task(cls, value: Any, info: ValidationInfo) -> tuple[TrackObject, ...]:
        """The objects by the rules of the row's task, which a target alone does not know."""
        if isinstance(value, list) and len(value) > MAX_OBJECTS:
            raise refusal(got=len(value), allowed=f"up to {MAX_OBJECTS} objects")
        task = info.data.get("task")
        objects = _OBJECTS.validate_python(value, context={"task": task})
        _each_once((item.id for item in objects), "object id repeats", "id")
        frame = info.data.get("reference_frame")
        return tuple(
            item if frame is None or "reference_frame" in item.model_fields_set
            else item.model_copy(update={"reference_frame": frame})
            for item in objects
        )  # fmt: skip

    @model_validator(mode="wrap")
    @classmethod
    def _frames_are_shown(cls, value: Any, handler: ModelWrapValidatorHandler[TrackRow]) -> TrackRow:
        """Every frame number must be one that the prompt shows an image for, when it shows images at all."""
        row = handler(value)
        params = value.get("responses_create_params") if isinstance(value, Mapping) else None
        conversation = params.get("input") if isinstance(params, Mapping) else None
        if isinstance(conversation, list):
            try:
                kinds = [part.kind for part in iter_media_parts(conversation)]
            except RowError as error:
                raise carried(error) from error
            if kinds and "video" not in kinds:
                _check_frames(row, len(kinds))
        return row


def check_track_row(row: object, where: Where | None = None) -> tuple[TrackRow | None, list[RowError]]:
    """The row, or ``None`` and everything that is wrong with it."""
    try:
        return TrackRow.model_validate(row), []
    except ValidationError as error:
        return None, row_errors(error, where)


def _task(info: ValidationInfo) -> Task | None:
    task = (info.context or {}).get("task")
    return cast("Task", task) if task in TASKS else None


def _each_once(numbers: Iterable[int], sentence: str, name: str) -> None:
    seen: set[int] = set()
    repeated = []
    for place, number in enumerate(numbers):
        if number in seen:
            field = f"[{place}].{name}"
            repeated.append(refusal(sentence, field=field, got=number, allowed="each number once"))
        seen.add(number)
    raise_all(repeated, None)


def _check_frames(row: TrackRow, images: int) -> None:
    first = 1 if row.task == "ref" else 0
    last = first + images - 1
    unseen = []
    for place, item in enumerate(row.objects):
        frames = {target.frame for target in item.targets}
        if item.reference_frame is not None:
            frames.add(item.reference_frame)
        missing = sorted(frame for frame in frames if not first <= frame <= last)
        if missing:
            sentence = f"object {item.id} names frames that have no image"
            field, allowed = f"objects[{place}]", f"{first} to {last}"
            unseen.append(refusal(sentence, field=field, got=missing, allowed=allowed))
    raise_all(unseen, None)
