# SPDX-License-Identifier: Apache-2.0
"""From one SA-V video and its masks to one tracking row, by seeded and documented rules.

The rules, in order:

1. The window is ``num_frames`` consecutive annotated frames (all when there are fewer); its start is drawn.
2. An object is a candidate when it shows in at least ``min_visible`` of the asked frames, all its asked masks hold
   a reachable grid point, and (``pt``, ``box``) it has a reference: the first frame of the window whose mask is at
   least ``min_depth`` pixels deep. A reference in a later frame is allowed when the object is absent from the
   first frame.
3. Candidates are taken in drawn order up to ``max_objects``; at least one must be there in the first frame.
4. A window without a candidate gives way to the next drawn one, four in all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.messages import image_part, text_part
from nemo_gym_video.prepare.outcome import Refusal
from nemo_gym_video.prepare.row_parts import agent_ref, user_message
from nemo_gym_video.prepare.sav.geometry import grid_box, interior_point, mask_pixels
from nemo_gym_video.tasks.tracking.masks import RleMask
from nemo_gym_video.tasks.tracking.prompts import PROMPT_VERSION, AskedObject, frame_label, track_prompt
from nemo_gym_video.tasks.tracking.schema import Task

_WINDOWS = 4

AGENTS: dict[Task, str] = {
    "pt": "sav_pt_tracks_agent",
    "box": "sav_box_tracks_agent",
    "ref": "sav_ref_tracks_agent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRules:
    """What a row must be. ``num_frames`` counts the images of a row, the reference frame included.

    ``min_visible`` is a share of an object's asked frames, ``min_depth`` a distance in pixels.
    """

    num_frames: int = 32
    min_frames: int = 4
    max_objects: int = 3
    min_visible: float = 0.5
    min_depth: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedObject:
    """One object of a row: ``column`` in the annotation, its reference, and its targets (row fields)."""

    column: int
    reference: AskedObject
    targets: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Chosen annotated frames (indices from ``start``), the objects to track, and why others were left out."""

    start: int
    length: int
    objects: tuple[TrackedObject, ...]
    left_out: Mapping[str, int]


def choose_window(
    masks: Sequence[Sequence[RleMask | None]],
    *,
    task: Task,
    rules: TrackRules,
    rng: random.Random,
    expressions: Mapping[int, str] | None = None,
) -> Window:
    """Choose frames and objects from ``masks`` [annotated frames][objects].

    ``expressions`` gives words by object column (``ref`` only).

    Raises:
        Refusal: too few frames, no object, or none that the rules let in, with the commonest reason.
    """
    if len(masks) < rules.min_frames:
        raise Refusal(
            "too_short", "too few annotated frames", got=len(masks), allowed=f"at least {rules.min_frames}"
        )
    if not masks[0]:
        raise Refusal("no_object", "annotation has no object")
    length = min(rules.num_frames, len(masks))
    starts = list(range(len(masks) - length + 1))
    rng.shuffle(starts)
    left_out: Counter[str] = Counter()
    for start in starts[:_WINDOWS]:
        window = masks[start : start + length]
        columns = [[frame[column] for frame in window] for column in range(len(masks[0]))]
        left_out = Counter()
        objects = _choose_objects(columns, task, rules, rng, expressions, left_out)
        if objects:
            return Window(start=start, length=length, objects=objects, left_out=dict(left_out))
    reason = min(left_out, key=lambda name: (-left_out[name], name))
    raise Refusal(reason, "no object of the video can be asked for", got=dict(left_out))


def _choose_objects(
    columns: Sequence[Sequence[RleMask | None]],
    task: Task,
    rules: TrackRules,
    rng: random.Random,
    expressions: Mapping[int, str] | None,
    left_out: Counter[str],
) -> tuple[TrackedObject, ...]:
    order = list(range(len(columns)))
    rng.shuffle(order)
    wanted = rng.randint(1, rules.max_objects)
    chosen: list[TrackedObject] = []
    for column in order:
        words = None if expressions is None else expressions.get(column)
        # The last place goes to an object that is there from the start, when no other one is.
        only_early = len(chosen) == wanted - 1 and task != "ref" and all(_is_late(one) for one in chosen)
        found = _track(column, columns[column], task, rules, words, number=len(chosen) + 1)
        if isinstance(found, str):
            left_out[found] += 1
        elif only_early and _is_late(found):
            left_out["late_only"] += 1
        else:
            chosen.append(found)
        if len(chosen) == wanted:
            return tuple(chosen)
    if task != "ref" and all(_is_late(one) for one in chosen):
        left_out["late_only"] += len(chosen)
        return ()
    return tuple(chosen)


def _is_late(one: TrackedObject) -> bool:
    return one.reference.frame > 0


def _track(
    column: int,
    masks: Sequence[RleMask | None],
    task: Task,
    rules: TrackRules,
    words: str | None,
    *,
    number: int,
) -> TrackedObject | str:
    """The object as the row asks for it, or the reason why it cannot be asked for."""
    if task == "ref":
        if words is None:
            return "no_expression"
        reference, first_asked, base = AskedObject(id=number, expression=words), 0, 1
    else:
        found = _reference(masks, task, rules, number)
        if isinstance(found, str):
            return found
        reference, first_asked, base = found, found.frame + 1, 0
    asked = masks[first_asked:]
    shown = sum(mask is not None for mask in asked)
    if len(asked) < 2 or shown < max(1, rules.min_visible * len(asked)):
        return "empty_mask"
    targets = []
    for place, mask in enumerate(asked, start=first_asked + base):
        target = _target(mask, place, task)
        if target is None:
            return "unreachable_mask"
        targets.append(target)
    return TrackedObject(column=column, reference=reference, targets=tuple(targets))


def _reference(masks: Sequence[RleMask | None], task: Task, rules: TrackRules, number: int) -> AskedObject | str:
    seen = False
    for frame, mask in enumerate(masks):
        if mask is None:
            continue
        point = interior_point(mask_pixels(mask))
        if point is not None and point.depth >= rules.min_depth and (frame == 0 or masks[0] is None):
            if task == "pt":
                return AskedObject(id=number, frame=frame, xy=point.xy)
            return AskedObject(id=number, frame=frame, bbox=_box(mask))
        seen = True
    return "thin_mask" if seen else "empty_mask"


def _box(mask: RleMask) -> tuple[int, int, int, int]:
    box = mask.bbox
    assert box is not None
    return grid_box(box, (mask.width, mask.height))


def _target(mask: RleMask | None, frame: int, task: Task) -> dict[str, Any] | None:
    if mask is None:
        return {"frame": frame, "visible": False}
    if task == "box":
        return {"frame": frame, "visible": True, "bbox": list(_box(mask))}
    point = interior_point(mask_pixels(mask))
    if point is None:
        return None
    return {"frame": frame, "visible": True, "xy": list(point.xy), "mask": mask.to_coco()}


def track_row(
    window: Window, *, task: Task, urls: Sequence[str], fps: float, rng: random.Random, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """The row: labelled stills (``urls``, one a frame) and a prompt in drawn order, objects with their targets."""
    base = 1 if task == "ref" else 0
    references = [one.reference for one in window.objects]
    prompt = track_prompt(task, references, first=base, last=base + len(urls) - 1, fps=fps, rng=rng)
    stills: list[dict[str, Any]] = []
    for frame, url in enumerate(urls, start=base):
        stills += [text_part(frame_label(frame)), image_part(url)]
    content = [*stills, text_part(prompt)] if rng.random() < 0.5 else [text_part(prompt), *stills]
    return {
        "responses_create_params": {"input": [user_message(content)]},
        "agent_ref": agent_ref(AGENTS[task]),
        "task": task,
        "reference_frame": 0,
        "coordinate_space": "grid1000",
        "objects": [_object_field(one, task) for one in window.objects],
        "metadata": {**metadata, "prompt_version": PROMPT_VERSION},
    }


def _object_field(one: TrackedObject, task: Task) -> dict[str, Any]:
    reference = one.reference
    fields: dict[str, Any] = {"id": reference.id}
    if task == "ref":
        fields["expression"] = reference.expression
    else:
        fields["reference_frame"] = reference.frame
        name, value = ("reference_xy", reference.xy) if task == "pt" else ("reference_bbox", reference.bbox)
        fields[name] = list(value or ())
    return {**fields, "targets": list(one.targets)}
