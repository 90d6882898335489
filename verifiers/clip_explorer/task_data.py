# SPDX-License-Identifier: Apache-2.0
"""The fields of a ``clip_explorer`` row, for ``gym env schema`` and data tools (imports only pydantic)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


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


class TaskData(BaseModel):
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
