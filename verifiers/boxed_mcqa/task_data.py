# SPDX-License-Identifier: Apache-2.0
"""The fields of a multiple-choice row, for ``gym env schema`` and data tools (imports only pydantic)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
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
