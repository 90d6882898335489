# SPDX-License-Identifier: Apache-2.0
"""The fields of a row of each of this package's tasks, for ``gym env schema`` and data tools (only pydantic).

A task of someone else's has its own row model: ``gym-video validate --task …`` checks against that.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

GridNumber = Annotated[float, Field(ge=0, le=1000)]
GridPoint = Annotated[list[GridNumber], Field(min_length=2, max_length=2)]
GridBox = Annotated[list[GridNumber], Field(min_length=4, max_length=4)]


class Mask(BaseModel):
    """A COCO RLE mask: column-major, ``counts`` a compressed string or run lengths that sum to height * width."""

    model_config = ConfigDict(extra="allow")

    size: list[int] = Field(min_length=2, max_length=2, description="[height, width] in pixels.")
    counts: str | list[int]


class Target(BaseModel):
    """What is true of one object on one asked frame."""

    model_config = ConfigDict(extra="allow")

    frame: int = Field(ge=0)
    visible: bool
    xy: GridPoint | None = Field(default=None, description="An interior point, where visible.")
    bbox: GridBox | None = Field(default=None, description="[x1, y1, x2, y2], where visible; needed for box.")
    mask: Mask | None = Field(default=None, description="Needed for pt and ref, where visible.")


class TrackedObject(BaseModel):
    """One object to follow."""

    model_config = ConfigDict(extra="allow")

    id: int
    reference_frame: int | None = Field(default=None, ge=0)
    reference_xy: GridPoint | None = None
    reference_bbox: GridBox | None = None
    targets: list[Target] = Field(min_length=1)


class TrackData(BaseModel):
    """What a row carries beside its messages."""

    model_config = ConfigDict(extra="allow")

    task: Literal["pt", "box", "ref"]
    objects: list[TrackedObject] = Field(min_length=1)
    coordinate_space: Literal["grid1000"] = "grid1000"
    reference_frame: int | None = Field(default=None, ge=0)
    absence_score: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="What an absent object answered absent earns; overrides the server's.",
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Where the row comes from.")
    media_contract: dict[str, Any] | None = Field(default=None, description="The row's media contract.")


class Stream(BaseModel):
    """The stills, and how many of them a turn brings."""

    model_config = ConfigDict(extra="allow")

    frames: list[str] = Field(
        min_length=2, max_length=10_000, description="Stills in order, the reference frame first (none for ref)."
    )
    chunk: int = Field(gt=0, description="Frames a turn; the reference frame comes beside the first chunk.")


class StreamData(TrackData):
    """What a row carries beside its messages."""

    stream: Stream


class BoxedData(BaseModel):
    """What a row carries beside its messages."""

    model_config = ConfigDict(extra="allow")

    options: list[dict[str, str]] = Field(
        min_length=2, description="Options in their order, each an object with one key: a letter A to J, its text."
    )
    expected_answer: str = Field(min_length=1, max_length=1, description="The right option's letter.")
    grading_mode: Literal["strict_single_letter_boxed", "lenient_boxed"] | None = Field(
        default=None, description="Overrides the server's grading mode."
    )
    task: str | None = Field(default=None, description="Name to report the row's metrics under.")
    metadata: dict[str, Any] | None = Field(default=None, description="Where the row comes from.")
    media_contract: dict[str, Any] | None = Field(default=None, description="The row's media contract.")


class ExplorerLimits(BaseModel):
    """What one row's episode may use; what is not set is the server's."""

    model_config = ConfigDict(extra="forbid")

    max_turns: int | None = Field(default=None, gt=0, description="Model turns, the final answer included.")
    max_frames: int | None = Field(default=None, gt=0, description="Frames in one answer.")
    overview_frames: int | None = Field(default=None, gt=0, description="Frames of the first observation.")
    crop_side: int | None = Field(default=None, gt=0, description="Longer side of an enlarged crop, pixels.")
    transport: Literal["manifest", "clip", "images"] | None = Field(
        default=None, description="How clips are sent: cached frames, a cut H.264 clip, or single images."
    )


class ExplorerData(BaseModel):
    """What a row carries beside its messages."""

    model_config = ConfigDict(extra="allow")

    video: str = Field(
        description="The clip, by a path or file URI below the server's media roots, or a data URL."
    )
    options: list[dict[str, str]] = Field(
        min_length=2, description="Options in their order, each an object with one key: a letter A to J, its text."
    )
    expected_answer: str = Field(min_length=1, max_length=1, description="The right option's letter.")
    grading_mode: Literal["strict_single_letter_boxed", "lenient_boxed"] | None = Field(
        default=None, description="Overrides the server's grading mode."
    )
    explorer: ExplorerLimits | None = Field(default=None, description="Overrides the server's limits.")
    metadata: dict[str, Any] | None = Field(default=None, description="Where the row comes from.")


def _kind(row: Any) -> str:
    """The task whose fields a row has, so that what is wrong is told of that task alone."""
    fields = row if isinstance(row, dict) else vars(row)
    if "objects" in fields or ("task" in fields and "options" not in fields):
        return "stream" if "stream" in fields else "track"
    return "explorer" if "video" in fields else "boxed"


TaskData = Annotated[
    Annotated[BoxedData, Tag("boxed")]
    | Annotated[ExplorerData, Tag("explorer")]
    | Annotated[TrackData, Tag("track")]
    | Annotated[StreamData, Tag("stream")],
    Discriminator(_kind),
]
