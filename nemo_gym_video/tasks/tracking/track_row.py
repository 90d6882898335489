# SPDX-License-Identifier: Apache-2.0
"""A tracking row, checked when it is read: one code for loading, verifying and ``gym-video validate``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import iter_media_parts
from nemo_gym_video.tasks.tracking.masks import GRID, RleMask
from nemo_gym_video.tasks.tracking.schema import TASKS, Task

Point = tuple[float, float]
Box = tuple[float, float, float, float]
MAX_OBJECTS = 100
"""Objects a row may have; bounds the work on an answer that invents ids."""

_SAFE_INTEGER = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is true of one object on one asked frame. Grid coordinates; ``mask`` in pixels of the frame."""

    frame: int
    visible: bool
    xy: Point | None = None
    bbox: Box | None = None
    mask: RleMask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackObject:
    """One object to follow: where it was shown (not for ref), and its targets in the row's order."""

    id: int
    targets: tuple[Target, ...]
    reference_frame: int | None = None
    reference_xy: Point | None = None
    reference_bbox: Box | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRow:
    """A tracking question's truth. ``absence_score`` is the row's own, or ``None``."""

    task: Task
    objects: tuple[TrackObject, ...]
    absence_score: float | None = None

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
        found, problems = check_track_row(row, where)
        if found is None:
            raise problems[0]
        return found


def check_track_row(row: object, where: Where | None = None) -> tuple[TrackRow | None, list[RowError]]:
    """The row, or ``None`` and everything that is wrong with it."""
    if not isinstance(row, Mapping):
        return None, [RowError("row is no JSON object", got=type(row).__name__, where=where)]
    task = row.get("task")
    if not isinstance(task, str) or task not in TASKS:
        return None, [
            RowError("task is unknown", code="row.unknown_task", got=task, allowed=", ".join(TASKS), where=where)
        ]
    check = _Check(cast("Task", task), where or Where())
    check.space(row)
    absence_score = check.absence_score(row.get("absence_score"))
    objects = check.objects(row)
    check.images(row, objects)
    if check.problems:
        return None, check.problems
    return TrackRow(task=check.task, objects=tuple(objects), absence_score=absence_score), []


class _Check:
    """Reads the fields of one row and collects every problem on the way."""

    def __init__(self, task: Task, where: Where) -> None:
        self.task = task
        self.where = where
        self.problems: list[RowError] = []

    def space(self, row: Mapping[str, Any]) -> None:
        space = row.get("coordinate_space")
        if space is not None and space != "grid1000":
            self._problem("coordinate_space is unknown", "coordinate_space", got=space, allowed="grid1000")

    def absence_score(self, given: object) -> float | None:
        if given is None:
            return None
        if isinstance(given, int | float) and _is_number(given) and 0 <= given <= 1:
            return float(given)
        self._problem("absence_score is no number from 0 to 1", "absence_score", got=given)
        return None

    def objects(self, row: Mapping[str, Any]) -> list[TrackObject]:
        given = row.get("objects")
        if not isinstance(given, list | tuple) or not given:
            self._problem("objects is no list of one or more", "objects", got=given)
            return []
        if len(given) > MAX_OBJECTS:
            self._problem("objects is too long", "objects", got=len(given), allowed=f"up to {MAX_OBJECTS}")
            return []
        default_frame = row.get("reference_frame")
        objects: list[TrackObject] = []
        seen: set[int] = set()
        for index, value in enumerate(given):
            found = self._object(value, f"objects[{index}]", default_frame)
            if found is None:
                continue
            if found.id in seen:
                self._problem("object id repeats", f"objects[{index}].id", got=found.id)
            seen.add(found.id)
            objects.append(found)
        return objects

    def images(self, row: Mapping[str, Any], objects: Sequence[TrackObject]) -> None:
        """Every frame number must be one that the prompt shows an image for, when it shows images at all."""
        params = row.get("responses_create_params")
        conversation = params.get("input") if isinstance(params, Mapping) else None
        if not isinstance(conversation, list):
            return
        try:
            kinds = [part.kind for part in iter_media_parts(conversation, where=self.where)]
        except RowError as error:
            self.problems.append(error)
            return
        if not kinds or "video" in kinds:
            return
        first = 1 if self.task == "ref" else 0
        last = first + len(kinds) - 1
        for item in objects:
            frames = [target.frame for target in item.targets]
            if item.reference_frame is not None:
                frames.append(item.reference_frame)
            missing = sorted({frame for frame in frames if not first <= frame <= last})
            if missing:
                self._problem(f"object {item.id} names frames that have no image", "objects",
                              got=missing, allowed=f"{first} to {last}")  # fmt: skip

    def _object(self, value: object, field: str, default_frame: object) -> TrackObject | None:
        before = len(self.problems)
        if not isinstance(value, Mapping):
            self._problem("object is no JSON object", field, got=value)
            return None
        identity = _integer(value.get("id"))
        if identity is None:
            self._problem("object id is no integer", f"{field}.id", got=value.get("id"))
        frame = value.get("reference_frame", default_frame)
        reference_frame = None
        if frame is not None and self.task != "ref":
            reference_frame = _integer(frame)
            if reference_frame is None or reference_frame < 0:
                self._problem("reference_frame is no frame number", f"{field}.reference_frame", got=frame)
        reference_xy = self._numbers(value.get("reference_xy"), 2, f"{field}.reference_xy")
        reference_bbox = self._numbers(value.get("reference_bbox"), 4, f"{field}.reference_bbox")
        targets = self._targets(value.get("targets"), field)
        if len(self.problems) > before or identity is None:
            return None
        return TrackObject(
            id=identity,
            targets=targets,
            reference_frame=reference_frame,
            reference_xy=cast("Point | None", reference_xy),
            reference_bbox=cast("Box | None", reference_bbox),
        )

    def _targets(self, given: object, field: str) -> tuple[Target, ...]:
        if not isinstance(given, list | tuple) or not given:
            self._problem("targets is no list of one or more", f"{field}.targets", got=given)
            return ()
        targets: list[Target] = []
        seen: set[int] = set()
        for index, value in enumerate(given):
            place = f"{field}.targets[{index}]"
            if not isinstance(value, Mapping):
                self._problem("target is no JSON object", place, got=value)
                continue
            target = self._target(value, place)
            if target is not None and target.frame in seen:
                self._problem("target frame repeats", place, got=target.frame)
            elif target is not None:
                seen.add(target.frame)
                targets.append(target)
        return tuple(targets)

    def _target(self, value: Mapping[str, Any], field: str) -> Target | None:
        before = len(self.problems)
        frame = _integer(value.get("frame"))
        if frame is None or frame < (1 if self.task == "ref" else 0):
            self._problem("target frame is no frame number", f"{field}.frame", got=value.get("frame"))
        visible = value.get("visible")
        if not isinstance(visible, bool):
            self._problem("target visible is no boolean", f"{field}.visible", got=visible)
        if len(self.problems) > before or frame is None:
            return None
        if not visible:
            return Target(frame=frame, visible=False)
        xy = self._numbers(value.get("xy"), 2, f"{field}.xy")
        bbox = self._numbers(value.get("bbox"), 4, f"{field}.bbox")
        target = Target(frame=frame, visible=True, xy=cast("Point | None", xy), bbox=cast("Box | None", bbox))
        if self.task != "box":
            target = replace(target, mask=self._mask(value.get("mask"), f"{field}.mask"))
        elif bbox is None and value.get("bbox") is None:
            self._problem("visible target has no bbox", f"{field}.bbox")
        return target if len(self.problems) == before else None

    def _mask(self, value: object, field: str) -> RleMask | None:
        if not isinstance(value, Mapping):
            self._problem("visible target has no mask", field, got=value, allowed='{"size", "counts"}')
            return None
        try:
            mask = RleMask.from_coco(
                value.get("size"), value.get("counts"), where=replace(self.where, field=field)
            )
        except RowError as error:
            self.problems.append(error)
            return None
        if mask.area == 0:
            self._problem("visible target has an empty mask", field)
        return mask

    def _numbers(self, value: object, count: int, field: str) -> tuple[float, ...] | None:
        if value is None:
            return None
        numbers = value if isinstance(value, list | tuple) else ()
        if len(numbers) != count or not all(_is_number(number) and 0 <= number <= GRID for number in numbers):
            self._problem(f"location is no list of {count} numbers", field, got=value, allowed=f"0 to {GRID}")
            return None
        if count == 4 and not (numbers[0] < numbers[2] and numbers[1] < numbers[3]):
            self._problem("box is empty or turned round", field, got=value, allowed="x1 < x2 and y1 < y2")
            return None
        return tuple(numbers)

    def _problem(self, problem: str, field: str, *, got: object = None, allowed: str | None = None) -> None:
        where = replace(self.where, field=field)
        self.problems.append(RowError(problem, got=got, allowed=allowed, where=where))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _integer(value: object) -> int | None:
    """``value`` as an integer when it is one (1.0 is) and small enough to be a number of anything."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE_INTEGER:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _SAFE_INTEGER:
        return None
    return value
