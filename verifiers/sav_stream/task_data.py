# SPDX-License-Identifier: Apache-2.0
"""The fields of a ``sav_stream`` row, for ``gym env schema`` and data tools: a tracking row and its chunks."""

from pydantic import BaseModel, ConfigDict, Field

from resources_servers.sav_tracks.task_data import TaskData as TrackingTaskData


class Stream(BaseModel):
    """The stills, and how many of them a turn brings."""

    model_config = ConfigDict(extra="allow")

    frames: list[str] = Field(
        min_length=2, max_length=10_000, description="Stills in order, the reference frame first (none for ref)."
    )
    chunk: int = Field(gt=0, description="Frames a turn; the reference frame comes beside the first chunk.")


class TaskData(TrackingTaskData):
    """What a row carries beside its messages."""

    stream: Stream
