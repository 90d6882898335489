# SPDX-License-Identifier: Apache-2.0
"""How ``validate``, ``baselines`` and ``verify`` find the task of each row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from nemo_gym_video.errors import Where
from nemo_gym_video.tasks.registry import AnyTask, TaskError, load_task, registered_tasks, task_class, task_of_row

TaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--task", metavar="TASK", help="Task of the rows: a name, module:attribute or file.py:Class; repeatable."
    ),
]


class TaskChoice:
    """One task, or several told apart by their rows' fields; by default all that are registered."""

    def __init__(self, named: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> None:
        """``settings`` go to every task that knows them.

        Raises:
            TaskError: a task cannot be loaded, or no task knows a setting.
        """
        settings = dict(settings or {})
        references = list(named) or list(registered_tasks())
        known = {reference: task_class(reference).Settings.model_fields for reference in references}
        for name in settings:
            if not any(name in fields for fields in known.values()):
                allowed = ", ".join(sorted({field for fields in known.values() for field in fields}))
                raise TaskError("no task has this setting", got=name, allowed=allowed)
        self.tasks = [
            load_task(reference, {name: value for name, value in settings.items() if name in known[reference]})
            for reference in references
        ]

    def of(self, row: Mapping[str, Any], where: Where | None = None) -> AnyTask:
        """The row's task. Raises ``RowError`` where none, or more than one, fits."""
        if len(self.tasks) == 1:
            return self.tasks[0]
        return task_of_row(row, where, among=self.tasks)


def read_settings(given: Sequence[str]) -> dict[str, Any]:
    """``key=value`` words as settings; a value is read as JSON, and is a text where it is not JSON."""
    settings: dict[str, Any] = {}
    for word in given:
        key, found, value = word.partition("=")
        if not found or not key:
            raise TaskError("setting is not key=value", got=word)
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings
