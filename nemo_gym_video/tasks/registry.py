# SPDX-License-Identifier: Apache-2.0
"""Finds tasks: by name, as ``module:attribute``, or in a file; and the task that a row belongs to."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from nemo_gym_video.errors import NemoGymVideoError, RowError, Where
from nemo_gym_video.tasks.task import Task

GROUP = "nemo_gym_video.tasks"
"""Entry-point group in which a package names its tasks."""

BUILT_IN = {
    "boxed_mcqa": "nemo_gym_video.tasks.boxed.boxed_task:BoxedMcqa",
    "sav_tracks": "nemo_gym_video.tasks.tracking.track_task:SavTracks",
    "clip_explorer": "nemo_gym_video.tasks.clip_explorer.explorer_task:ClipExplorer",
    "sav_stream": "nemo_gym_video.tasks.sav_stream.stream_task:SavStream",
}
"""This package's own entry points again, for a checkout that is on the path without being installed."""

AnyTask = Task[Any]


class TaskError(NemoGymVideoError):
    """A task cannot be found, imported or configured."""

    code = "task.import"


def registered_tasks() -> dict[str, str]:
    """Reference (``module:attribute``) by name of every task that an installed package declares."""
    return dict(_declared())


@cache
def _declared() -> Mapping[str, str]:
    # Once a process: reading what is installed takes milliseconds, and every row of a file asks.
    return {**BUILT_IN, **{point.name: point.value for point in entry_points(group=GROUP)}}


def load_task(
    reference: str,
    settings: Mapping[str, Any] | None = None,
    *,
    folders: Sequence[Path] = (),
) -> AnyTask:
    """The task that ``reference`` names, configured.

    ``reference`` is a registered name (or a task's alias), ``module:attribute``, or ``path/task.py:Class``
    (``:Class`` may be left out where the file defines one task). A relative path is looked for in ``folders``, the
    working directory, and Gym's search folders.

    Raises:
        TaskError: there is no such task, its module cannot be imported, or it refuses the settings.
    """
    found = task_class(reference, folders=folders)
    try:
        return found(settings)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        allowed = ", ".join(found.Settings.model_fields) or "no settings"
        raise TaskError(
            f"task {reference} refuses its settings: {problems}", code="task.settings", allowed=allowed
        ) from error


def task_class(reference: str, *, folders: Sequence[Path] = ()) -> type[AnyTask]:
    """The class behind ``reference`` (see ``load_task``)."""
    known = registered_tasks()
    place, _, attribute = known.get(reference, reference).partition(":")
    if place.endswith(".py"):
        return _attribute(_module_of_file(place, reference, folders), attribute, reference)
    if not attribute:
        for name in known:
            with_alias = task_class(name)
            if reference in with_alias.aliases:
                return with_alias
        raise TaskError("task is unknown", got=reference, allowed=_ways(known))
    try:
        module = importlib.import_module(place)
    except Exception as error:
        raise _not_imported(reference, error, sys.path) from error
    return _attribute(module, attribute, reference)


def task_of_row(
    raw: Mapping[str, Any],
    where: Where | None = None,
    *,
    named: str | None = None,
    among: Iterable[AnyTask] | None = None,
) -> AnyTask:
    """The task that a row belongs to: the one ``named``, else by the row's fields.

    Of the tasks (``among``; by default all that are registered) whose required fields the row has, the one with
    most of them.

    Raises:
        RowError: no task, or more than one, fits.
        TaskError: ``named`` cannot be loaded.
    """
    if named is not None:
        return _default(named)
    tasks = [_default(name) for name in registered_tasks()] if among is None else list(among)
    fitting = [task for task in tasks if task.required and task.required <= raw.keys()]
    most = max((len(task.required) for task in fitting), default=0)
    best = [task for task in fitting if len(task.required) == most]
    if len(best) == 1:
        return best[0]
    listed = "; ".join(f"{task.name} ({', '.join(sorted(task.required))})" for task in best or tasks)
    problem = "row fits more than one task: name one" if best else "row fits no registered task by its fields"
    raise RowError(problem, code="row.unknown_task", got=sorted(raw)[:10], allowed=listed, where=where)


@cache
def _default(reference: str) -> AnyTask:
    return load_task(reference)


def _module_of_file(place: str, reference: str, folders: Sequence[Path]) -> ModuleType:
    roots = [*folders, Path.cwd(), *_search_folders()]
    tried = list(dict.fromkeys(str((root / place).absolute()) for root in roots))
    file = next((Path(path) for path in tried if Path(path).is_file()), None)
    if file is None:
        raise TaskError("task file does not exist", got=reference, allowed="tried: " + ", ".join(tried))
    name = f"_nemo_gym_video_task_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks a module's annotations up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _not_imported(reference, error, [str(file)]) from error
    return module


def _search_folders() -> list[Path]:
    """Gym's extra roots, and what is on the path (Gym puts its search folders there)."""
    extra = os.environ.get("NEMO_GYM_EXTRA_ROOTS", "")
    return [Path(name) for name in [*extra.split(os.pathsep), *sys.path] if name]


def _attribute(module: ModuleType, attribute: str, reference: str) -> type[AnyTask]:
    if attribute:
        found = getattr(module, attribute, None)
        if isinstance(found, type) and issubclass(found, Task):
            return found
        raise TaskError(f"{attribute} of {module.__file__} is not a Task class", got=reference)
    own = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Task) and one.__module__ == module.__name__
    ]
    if len(own) != 1:
        names = ", ".join(one.__name__ for one in own) or "none"
        raise TaskError("task file must define one Task, or the reference name it", got=reference, allowed=names)
    return own[0]


def _not_imported(reference: str, error: Exception, tried: Iterable[str]) -> TaskError:
    return TaskError(
        f"task {reference} cannot be imported ({type(error).__name__}: {error})",
        allowed="tried: " + ", ".join(path or "." for path in tried),
    )


def _ways(known: Mapping[str, str]) -> str:
    return f"{', '.join(known)}, module:attribute, or path/task.py:Class"
