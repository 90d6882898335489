# SPDX-License-Identifier: Apache-2.0
"""Scores a tracking answer against a row. The rules are in ``docs/scoring.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.answers.visible import MAX_ANSWER_CHARS, Output
from nemo_gym_video.tasks.tracking.assignment import assign_ids
from nemo_gym_video.tasks.tracking.entries import AnswerRefused, Entry, Rules, read_tracks
from nemo_gym_video.tasks.tracking.metrics import PointPair, TapVid, tap_vid
from nemo_gym_video.tasks.tracking.track_result import Cell, ObjectScore, TrackReason, TrackResult, bad_track_row
from nemo_gym_video.tasks.tracking.track_row import TrackObject, TrackRow, TrackTarget


def score_tracks(
    output: Output,
    row: TrackRow | object,
    *,
    rules: Rules = "strict",
    absence_score: float | None = None,
    max_chars: int = MAX_ANSWER_CHARS,
) -> TrackResult:
    """Score ``output`` (text or output items) against a row, read or not. Raises for no input.

    ``absence_score`` is what an absent object answered absent earns (0 to 1, default 1); the row's own wins. A
    malformed row gives a result with ``mask_sample``.

    >>> from nemo_gym_video import score_tracks
    >>> target = {"frame": 1, "visible": True, "bbox": [100, 100, 300, 300]}
    >>> row = {
    ...     "task": "box",
    ...     "reference_frame": 0,
    ...     "coordinate_space": "grid1000",
    ...     "objects": [
    ...         {"id": 1, "reference_frame": 0, "reference_bbox": [100, 100, 300, 300], "targets": [target]}
    ...     ],
    ... }
    >>> entry = '{"box": 1, "frame": 1, "visible": true, "bbox": [100, 100, 300, 200]}'
    >>> answer = f'<answer>{{"tracks": [{entry}]}}</answer>'
    >>> score_tracks(answer, row).reward
    0.5
    """
    if not isinstance(row, TrackRow):
        try:
            row = TrackRow.from_row(row)
        except RowError as error:
            return bad_track_row(error)
    if row.absence_score is not None:
        absence_score = row.absence_score
    absence_score = 1.0 if absence_score is None else absence_score
    try:
        entries = read_tracks(output, row.task, rules=rules, max_chars=max_chars)
    except AnswerRefused as refused:
        return _result(row, refused.reason, [_Track(item) for item in row.objects], 0, absence_score)
    return score_entries(entries, row, rules=rules, absence_score=absence_score)


def score_entries(
    entries: Sequence[Entry], row: TrackRow, *, rules: Rules = "strict", absence_score: float = 1.0
) -> TrackResult:
    """Score entries that have been read already."""
    tracks = [_Track(item) for item in row.objects]
    owners: dict[int | str, _Track] = {track.item.id: track for track in tracks}
    if row.task == "ref":
        assigned = assign_ids(row.objects, entries, rules=rules, absence_score=absence_score)
        owners = {identity: tracks[index] for identity, index in assigned.items()}
        for identity, owner in owners.items():
            owner.predicted_id = identity
    extras = 0
    not_asked: set[tuple[int | str, int | str]] = set()
    for entry in entries:
        identity, frame, _ = entry
        track = owners.get(identity)
        if track is not None and frame in track.targets:
            extras += track.take(entry, rules, absence_score)
        elif track is None or rules == "strict":
            extras += 1
        else:
            # Baseline counts one extra a frame of a track, however often it is named.
            extras += (identity, frame) not in not_asked
            not_asked.add((identity, frame))
    return _result(row, "scored", tracks, extras, absence_score)


def cell_credit(target: TrackTarget, location: tuple[float, ...] | None, absence_score: float) -> float:
    """What an answer for one cell earns: ``location`` as answered, ``None`` for absent."""
    if not target.visible:
        return absence_score if location is None else 0.0
    if location is None:
        return 0.0
    if target.mask is not None:
        return float(target.mask.contains(location[0], location[1]))
    return 0.0 if target.bbox is None else iou(target.bbox, location)


def iou(box: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2) of positive area."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = [(corners[2] - corners[0]) * (corners[3] - corners[1]) for corners in (box, other)]
    return shared / (areas[0] + areas[1] - shared)


@dataclass(slots=True)
class _Answer:
    """The entry that counts for a cell, what it earned, and how many there were."""

    location: tuple[float, ...] | None
    earned: float
    count: int = 1


@dataclass(slots=True)
class _Track:
    """One object while entries are dealt out to it."""

    item: TrackObject
    predicted_id: int | str | None = None
    targets: Mapping[int | str, TrackTarget] = field(init=False)
    answers: dict[int | str, _Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.targets = {target.frame: target for target in self.item.targets}

    def take(self, entry: Entry, rules: Rules, absence_score: float) -> int:
        """Credit ``entry`` to its cell; 1 when it repeats the cell, else 0."""
        earned = cell_credit(self.targets[entry.frame], entry.location, absence_score)
        before = self.answers.get(entry.frame)
        if before is None:
            self.answers[entry.frame] = _Answer(entry.location, earned)
            return 0
        before.count += 1
        if earned < before.earned if rules == "strict" else earned > before.earned:
            before.location, before.earned = entry.location, earned
        return 1

    def cell(self, target: TrackTarget, absence_score: float) -> Cell:
        """The result for one target."""
        answer = self.answers.get(target.frame)
        claimed_absent = answer is None and self.predicted_id is not None
        if claimed_absent:
            answer = _Answer(None, cell_credit(target, None, absence_score), 0)
        return Cell(
            object_id=self.item.id,
            frame=target.frame,
            expected="visible" if target.visible else "absent",
            answered="missing" if answer is None else "absent" if answer.location is None else "visible",
            location=None if answer is None else answer.location,
            earned=0.0 if answer is None else answer.earned,
            answers=0 if answer is None else answer.count,
        )


def _result(
    row: TrackRow, reason: TrackReason, tracks: Sequence[_Track], extras: int, absence_score: float
) -> TrackResult:
    cells = [[track.cell(target, absence_score) for target in track.item.targets] for track in tracks]
    means = [sum(cell.earned for cell in own) / len(own) for own in cells]
    factor = row.cells / (row.cells + extras)
    located = [sum(cell.earned for cell in own if cell.expected == "visible") / len(own) for own in cells]
    denied = [sum(cell.earned for cell in own if cell.expected == "absent") / len(own) for own in cells]
    flat = [cell for own in cells for cell in own]
    seen = [cell.earned for cell in flat if cell.expected == "visible"]
    rate = sum(seen) / len(seen) if seen else None
    return TrackResult(
        reward=sum(means) / len(means) * factor,
        reason=reason,
        format_ok=reason == "scored",
        object_scores=tuple(
            ObjectScore(object_id=track.item.id, mean=mean, predicted_id=track.predicted_id)
            for track, mean in zip(tracks, means, strict=True)
        ),
        cells=tuple(flat),
        missing=sum(cell.answers == 0 for cell in flat),
        extras=extras,
        localization=sum(located) / len(means) * factor,
        absence=sum(denied) / len(means) * factor,
        in_mask_rate=None if row.task == "box" else rate,
        mean_iou=rate if row.task == "box" else None,
        visibility_accuracy=sum(cell.answered == cell.expected for cell in flat) / len(flat),
        tap_vid=_tap_vid(row, flat),
    )


def _tap_vid(row: TrackRow, cells: Sequence[Cell]) -> TapVid | None:
    """Point metrics of a pt row whose visible targets all carry a point."""
    targets = [target for item in row.objects for target in item.targets]
    if row.task != "pt" or any(target.visible and target.xy is None for target in targets):
        return None
    pairs = [
        PointPair(target.xy, (cell.location[0], cell.location[1]) if cell.location else None,
                  cell.answered == "visible")
        for target, cell in zip(targets, cells, strict=True)
    ]  # fmt: skip
    return tap_vid(pairs)
