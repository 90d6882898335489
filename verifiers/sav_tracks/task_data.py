# SPDX-License-Identifier: Apache-2.0
"""The fields of a tracking row, for ``gym env schema`` and data tools (imports only pydantic)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class TaskData(BaseModel):
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
