# SPDX-License-Identifier: Apache-2.0
"""Tracking in chunks: every turn brings the next frames as stills, the model answers the tracks of that chunk.

Scored over the whole clip by the rules of single-turn tracking. What this environment adds to them: an entry for
a frame outside the turn's own chunk is an extra (nothing may be answered before it is seen, or corrected after),
and a chunk whose answer is refused leaves the cells of that chunk without entries; the other chunks stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import image_part, text_part
from nemo_gym_video.tasks.answers.visible import Output
from nemo_gym_video.tasks.observation import Observation
from nemo_gym_video.tasks.task import Answer, Episode
from nemo_gym_video.tasks.tracking.entries import AnswerRefused, Entry, Rules, read_tracks
from nemo_gym_video.tasks.tracking.prompts import frame_label
from nemo_gym_video.tasks.tracking.scoring import score_entries
from nemo_gym_video.tasks.tracking.track_result import TrackResult, bad_track_row
from nemo_gym_video.tasks.tracking.track_row import TrackObject, TrackRow

_MAX_FRAMES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """A tracking row whose stills arrive in chunks.

    ``urls`` are the stills in order; the first carries frame number ``first`` (0 where it is the reference, 1 for
    ``ref``). ``chunks`` are half-open ranges of frame numbers; the reference frame belongs to the first.
    """

    track: TrackRow
    urls: tuple[str, ...]
    first: int
    chunks: tuple[range, ...]

    @classmethod
    def from_row(cls, row: object, where: Where | None = None) -> StreamRow:
        """Read the row's tracking fields and its ``stream`` block: ``{"frames": [url, …], "chunk": K}``.

        Raises:
            RowError: the first problem.
        """
        track = TrackRow.from_row(row, where)
        stream = row.get("stream") if isinstance(row, Mapping) else None
        if not isinstance(stream, Mapping):
            raise RowError("row has no stream block", got=stream, where=where)
        urls, size = stream.get("frames"), stream.get("chunk")
        if (
            not isinstance(urls, list)
            or not 2 <= len(urls) <= _MAX_FRAMES
            or not all(isinstance(u, str) for u in urls)
        ):
            raise RowError("stream frames are no list of two or more strings", got=urls, where=where)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise RowError("stream chunk is no positive integer", got=size, where=where)
        first = 1 if track.task == "ref" else 0
        frames = range(first, first + len(urls))
        for item in track.objects:
            strangers = [target.frame for target in item.targets if target.frame not in frames]
            if strangers:
                raise RowError("target on a frame that the stream does not bring", got=strangers[0],
                               allowed=f"{frames.start} to {frames.stop - 1}", where=where)  # fmt: skip
        return cls(track=track, urls=tuple(urls), first=first, chunks=_chunks(frames, size, track.task != "ref"))


def _chunks(frames: range, size: int, has_reference: bool) -> tuple[range, ...]:
    head = frames.start + size + int(has_reference)
    rest = range(head, frames.stop, size)
    first = range(frames.start, min(head, frames.stop))
    return (first, *(range(start, min(start + size, frames.stop)) for start in rest))


class StreamEpisode(Episode):
    """One episode: hands out chunk after chunk and ends after the answer to the last."""

    def __init__(self, row: StreamRow) -> None:
        """``state`` has the model turns taken."""
        super().__init__()
        self.row = row
        self.state = {"turns": 0}

    def begin(self) -> Observation:
        """The first chunk, the reference frame included."""
        return self._chunk(0)

    def step(self, answer: Answer) -> Observation:
        """The next chunk, or the end. The answer is read when the episode is scored."""
        del answer
        self.state["turns"] += 1
        if self.state["turns"] >= len(self.row.chunks):
            return Observation(done=True, reason="all_frames_seen", info=dict(self.state))
        return self._chunk(self.state["turns"])

    def _chunk(self, number: int) -> Observation:
        frames = self.row.chunks[number]
        parts: list[dict[str, Any]] = []
        for frame in frames:
            parts += [text_part(f"{frame_label(frame)}"), image_part(self.row.urls[frame - self.row.first])]
        parts.append(text_part(self._ask(number, frames)))
        return Observation(parts=tuple(parts), info={**self.state, "chunk": number})

    def _ask(self, number: int, frames: range) -> str:
        start = frames.start + int(number == 0 and self.row.track.task != "ref")
        late = [_entry(item) for item in self.row.track.objects if number and item.reference_frame in frames]
        words = f"New: {', '.join(late)}. " if late else ""
        return f"{words}Now answer for frames {start} to {frames.stop - 1} only."


def _entry(item: TrackObject) -> str:
    noun = "box" if item.reference_xy is None else "point"
    place: Sequence[float] = item.reference_xy or item.reference_bbox or ()
    numbers = ", ".join(f"{value:g}" for value in place)
    return f"{noun} {item.id} at ({numbers}) in frame {item.reference_frame}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkScore:
    """One chunk: its frames (first and last), the reason word of its answer, and the mean credit of its cells."""

    frames: tuple[int, int]
    reason: str
    cells: int
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """The whole clip's score and each chunk's."""

    track: TrackResult
    chunks: tuple[ChunkScore, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The tracking result's fields, plus ``chunks``."""
        chunks = [
            {"frames": list(chunk.frames), "reason": chunk.reason, "cells": chunk.cells, "mean": chunk.mean}
            for chunk in self.chunks
        ]
        return {**self.track.to_json(), "chunks": chunks}


def score_stream(
    output: Output,
    row: StreamRow | object,
    *,
    rules: Rules = "strict",
    absence_score: float | None = None,
    where: Where | None = None,
) -> StreamResult:
    """Score a whole episode's output items against its row. Raises for no input; a bad row is ``mask_sample``."""
    if not isinstance(row, StreamRow):
        try:
            row = StreamRow.from_row(row, where)
        except RowError as error:
            return StreamResult(track=bad_track_row(error))
    entries: list[Entry] = []
    reasons = ["not_reached"] * len(row.chunks)
    for number, (turn, frames) in enumerate(zip(Answer(output).turns, row.chunks, strict=False)):
        try:
            read = read_tracks(turn.output, row.track.task, rules=rules)
        except AnswerRefused as refused:
            reasons[number] = refused.reason
            continue
        reasons[number] = "scored"
        entries += [_own(entry, frames, number) for entry in read]
    score = row.track.absence_score if row.track.absence_score is not None else absence_score
    track = score_entries(entries, row.track, rules=rules, absence_score=1.0 if score is None else score)
    chunks = tuple(_chunk_score(track, frames, reason) for frames, reason in zip(row.chunks, reasons, strict=True))
    return StreamResult(track=track, chunks=chunks)


def _own(entry: Entry, frames: range, chunk: int) -> Entry:
    """The entry itself, or, when its frame is not of its chunk, one for a frame that nobody asked."""
    if entry.frame in frames:
        return entry
    return Entry(entry.id, f"{entry.frame} in chunk {chunk}", entry.location)


def _chunk_score(track: TrackResult, frames: range, reason: str) -> ChunkScore:
    earned = [cell.earned for cell in track.cells if cell.frame in frames]
    mean = sum(earned) / len(earned) if earned else None
    return ChunkScore(frames=(frames.start, frames.stop - 1), reason=reason, cells=len(earned), mean=mean)
