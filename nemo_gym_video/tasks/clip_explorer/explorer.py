# SPDX-License-Identifier: Apache-2.0
"""A question about a clip too long to show: the model asks for parts of it, then answers in a box.

Times are the stream's presentation times in seconds (a clip that starts late begins above zero). A clip for
[start, end] holds exactly the source frames whose time lies in that closed interval; with ``fps``, of those
the first at or after each step.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import CACHED_FRAMES_PREFIX, FrameManifest, image_part, text_part, video_part
from nemo_gym_video.tasks.answers.visible import Output, visible_text
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.boxed.options import BoxedRow, GradingMode
from nemo_gym_video.tasks.clip_explorer.requests import (
    BadRequest,
    ClipRequest,
    CropRequest,
    FramesRequest,
    Request,
    function_calls,
    read_call,
    read_text,
)
from nemo_gym_video.tasks.observation import Observation, turns_of
from nemo_gym_video.tasks.task import Answer, Episode
from nemo_gym_video.validation import ClosedModel, row_errors

Transport = Literal["manifest", "clip", "images"]
Pixels = NDArray[np.uint8]
StrictPositive = Annotated[int, Field(strict=True, gt=0)]

_SHOWN_TIME = re.compile(r"-?\d+\.\d\d(?=, | s\.)")
_SLACK = 1e-6
_HALF_CENT = 0.005  # times are shown with two decimals; what was shown may be asked for


class Footage(Protocol):
    """What an episode needs of its clip: presentation times and the frames at given indices."""

    @property
    def times(self) -> Sequence[float]:
        """Presentation times in seconds, ascending, one for each frame."""

    @property
    def end_s(self) -> float:
        """When the last frame ends, seconds."""

    def read(self, indices: Sequence[int]) -> Pixels:
        """RGB frames [n, h, w, 3] at ``indices``, in that order."""


class MediaWriter(Protocol):
    """Turns frames into a reference the engine can open."""

    def manifest(self, frames: Pixels) -> str:
        """URL of a cached-frame manifest of ``frames`` [n, h, w, 3]."""

    def clip(self, frames: Pixels, times: Sequence[float]) -> str:
        """URL of a clip of ``frames`` shown at ``times`` (seconds)."""

    def image(self, frame: Pixels) -> str:
        """URL of a still [h, w, 3]."""


class ExplorerLimits(ClosedModel):
    """What an episode may use: model turns in all, frames in one answer, frames of the overview."""

    max_turns: StrictPositive = Field(default=8, description="Model turns, the final answer included.")
    max_frames: StrictPositive = Field(default=32, description="Frames in one answer.")
    overview_frames: StrictPositive = Field(default=8, description="Frames of the first observation.")
    crop_side: StrictPositive = Field(default=512, description="Longer side of an enlarged crop, pixels.")
    transport: Transport = Field(
        default="manifest", description="How clips are sent: cached frames, a cut H.264 clip, or single images."
    )

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, where: Where | None = None) -> ExplorerLimits:
        """Read a row's or a configuration's ``explorer`` block; unknown keys and bad values are refused."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise row_errors(error, where)[0] from error


class ExplorerEpisode(Episode):
    """One episode: answers each turn of the model and counts in ``state`` what it used."""

    def __init__(self, footage: Footage, writer: MediaWriter, limits: ExplorerLimits) -> None:
        """``state`` has the model turns taken, the frames shown, and the requests that were refused."""
        super().__init__()
        self.footage = footage
        self.writer = writer
        self.limits = limits
        self.state = {"turns": 0, "frames_shown": 0, "bad_requests": 0}

    def begin(self) -> Observation:
        """The overview: evenly spread frames with their times."""
        total = len(self.footage.times)
        count = min(self.limits.overview_frames, total)
        indices = [round(index) for index in np.linspace(0, total - 1, count)]
        head = f"Overview of the video, which runs {self._span()}: {count} frames, at"
        return self._show(indices, head, as_video=True)

    def step(self, answer: Answer) -> Observation:
        """Answer one model turn; done when it holds no request but a final answer."""
        self.state["turns"] += 1
        calls = function_calls(answer.items)
        visible = visible_text(answer.output)
        request = None if calls else read_text(visible.text)
        if not calls and request is None and "\\boxed{" in visible.text:
            return self._done("answered")
        if self.state["turns"] >= self.limits.max_turns:
            return self._done("turn_limit")
        if calls:
            return self._answer_calls(calls)
        advice = "Ask for a part of the video, or give the final answer within \\boxed{...}."
        return self._answer(request or BadRequest(advice))

    def _answer_calls(self, calls: Sequence[Mapping[str, Any]]) -> Observation:
        parts: list[dict[str, Any]] = []
        outputs: list[tuple[str, str]] = []
        for call in calls:
            answer = self._answer(read_call(call))
            media = [part for part in answer.parts if part["type"] != "input_text"]
            outputs.append((str(call.get("call_id", "")), answer.parts[0]["text"]))
            # The words go where the call expects them; the media can only travel in a user message.
            parts += [*answer.parts] if media else []
        return Observation(parts=tuple(parts), tool_outputs=tuple(outputs), info=self.usage())

    def _answer(self, request: Request) -> Observation:
        if isinstance(request, ClipRequest):
            return self._clip(request)
        if isinstance(request, FramesRequest):
            return self._frames(request)
        if isinstance(request, CropRequest):
            return self._crop(request)
        return self._refuse(request.advice)

    def _clip(self, request: ClipRequest) -> Observation:
        if self._outside(request.start):
            return self._refuse(f"The clip is outside the video, which runs {self._span()}.")
        indices = clip_indices(self.footage.times, request.start, request.end, fps=request.fps)
        if not indices:
            return self._refuse("No frame lies between these times; ask for a longer clip.")
        if len(indices) > self.limits.max_frames:
            return self._refuse(
                f"The clip is too long: {len(indices)} frames, at most {self.limits.max_frames}. "
                "Ask for a shorter clip or a lower fps."
            )
        end = min(request.end, self.footage.end_s)
        head = f"Clip from {request.start:.2f} s to {end:.2f} s: {len(indices)} frames, at"
        return self._show(indices, head, as_video=True)

    def _frames(self, request: FramesRequest) -> Observation:
        if len(request.times) > self.limits.max_frames:
            return self._refuse(f"Too many frames: {len(request.times)}, at most {self.limits.max_frames}.")
        if any(self._outside(time) for time in request.times):
            return self._refuse(f"A time is outside the video, which runs {self._span()}.")
        return self._show([self._at(time) for time in request.times], "Frames at", as_video=False)

    def _crop(self, request: CropRequest) -> Observation:
        if self._outside(request.time):
            return self._refuse(f"The time is outside the video, which runs {self._span()}.")
        index = self._at(request.time)
        frame = enlarge(crop(self.footage.read([index])[0], request.box), side=self.limits.crop_side)
        self.state["frames_shown"] += 1
        box = ", ".join(f"{value:g}" for value in request.box)
        words = f"Crop [{box}] of the frame at {self.footage.times[index]:.2f} s. {self._left()}"
        return Observation(parts=(text_part(words), image_part(self.writer.image(frame))), info=self.usage())

    def _show(self, indices: Sequence[int], head: str, *, as_video: bool) -> Observation:
        times = [self.footage.times[index] for index in indices]
        listed = ", ".join(f"{time:.2f}" for time in times)
        words = text_part(f"{head} {listed} s. {self._left()}")
        frames = self.footage.read(indices)
        self.state["frames_shown"] += len(indices)
        if as_video and self.limits.transport != "images":
            as_clip = self.limits.transport == "clip"
            url = self.writer.clip(frames, times) if as_clip else self.writer.manifest(frames)
            return Observation(parts=(words, video_part(url)), info=self.usage())
        parts: list[dict[str, Any]] = [words]
        for time, frame in zip(times, frames, strict=True):
            parts += [text_part(f"{time:.2f} s:"), image_part(self.writer.image(frame))]
        return Observation(parts=tuple(parts), info=self.usage())

    def _refuse(self, advice: str) -> Observation:
        self.state["bad_requests"] += 1
        return Observation(parts=(text_part(f"{advice} {self._left()}"),), info=self.usage())

    def _done(self, reason: str) -> Observation:
        return Observation(done=True, reason=reason, info=self.usage())

    def _at(self, time: float) -> int:
        return max(0, bisect.bisect_right(self.footage.times, time + _SLACK) - 1)

    def _outside(self, time: float) -> bool:
        return not self.footage.times[0] - _HALF_CENT <= time <= self.footage.end_s + _HALF_CENT

    def _span(self) -> str:
        return f"from {self.footage.times[0]:.2f} s to {self.footage.end_s:.2f} s"

    def _left(self) -> str:
        left = self.limits.max_turns - self.state["turns"] - 1
        return "Answer now within \\boxed{...}." if left <= 0 else f"You can ask {left} more times."

    def usage(self) -> dict[str, Any]:
        """What the episode has used so far."""
        return dict(self.state)


def clip_indices(times: Sequence[float], start: float, end: float, *, fps: float | None = None) -> list[int]:
    """Indices of the frames whose time lies in [start, end] seconds.

    With ``fps``, of those the first at or after each of start, start + 1/fps, …; a frame is taken once, so a
    rate above the source's gives every frame. ``times`` ascend; a microsecond of rounding is forgiven.
    """
    first = bisect.bisect_left(times, start - _SLACK)
    stop = bisect.bisect_right(times, end + _SLACK)
    if fps is None:
        return list(range(first, stop))
    chosen: list[int] = []
    index = first
    while index < stop:
        chosen.append(index)
        steps = int((times[index] - start) * fps + _SLACK) + 1
        index = max(index + 1, bisect.bisect_left(times, start + steps / fps - _SLACK, index + 1, stop))
    return chosen


def crop(frame: Pixels, box: tuple[float, float, float, float]) -> Pixels:
    """The pixels of ``frame`` [h, w, 3] that a grid box (0..1000) touches, at least one."""
    height, width = frame.shape[:2]
    x1, y1, x2, y2 = box
    left = min(int(x1 / 1000 * width), width - 1)
    top = min(int(y1 / 1000 * height), height - 1)
    right = max(left + 1, -int(-x2 / 1000 * width // 1))
    bottom = max(top + 1, -int(-y2 / 1000 * height // 1))
    return frame[top:bottom, left:right]


def enlarge(frame: Pixels, *, side: int) -> Pixels:
    """Scale [h, w, 3] up so that its longer side has ``side`` pixels; a larger one stays as it is."""
    from PIL import Image  # start-up: scoring workers open no picture

    height, width = frame.shape[:2]
    factor = side / max(height, width)
    if factor <= 1:
        return frame
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerCosts:
    """What asking costs: reward taken off a right answer for each request turn and each frame shown."""

    turn: float = 0.0
    frame: float = 0.0

    def of(self, usage: Mapping[str, Any]) -> float:
        """The cost of an episode's usage (see ``ExplorerEpisode.usage``), 0 to 1."""
        turns = max(0, int(usage.get("turns", 1)) - 1)
        return min(1.0, self.turn * turns + self.frame * int(usage.get("frames_shown", 0)))


def frames_in(output: Sequence[Any]) -> int:
    """How many frames the environment showed in an episode's output items, by the media of its user messages.

    A cut clip counts the times listed in the words before it.
    """
    return sum(_frames_of(part, before) for item in output for before, part in _shown_parts(item))


def _shown_parts(item: object) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The content parts of a user message, each with the one before it."""
    if not isinstance(item, Mapping) or item.get("type") != "message" or item.get("role") == "assistant":
        return
    content = item.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list | tuple) else []
    yield from pairwise([{}, *parts])


def _frames_of(part: Mapping[str, Any], before: Mapping[str, Any]) -> int:
    if part.get("type") == "input_image":
        return 1
    if part.get("type") != "input_video":
        return 0
    given = part.get("video_url") or part.get("video")
    url = given.get("url") if isinstance(given, Mapping) else given
    if isinstance(url, str) and url.startswith(CACHED_FRAMES_PREFIX):
        try:
            return len(FrameManifest.from_url(url).frame_paths)
        except RowError:
            return 0
    words = before.get("text")
    return len(_SHOWN_TIME.findall(words.partition(" frames, at ")[2])) if isinstance(words, str) else 0


def recount(output: Sequence[Any], *, overview_frames: int) -> dict[str, Any]:
    """The usage of an episode whose session is gone, from its output items: turns, and frames by its media.

    The overview stands before the first turn, not in the output: it counts ``overview_frames``, the most it had.
    """
    return {"turns": len(turns_of(output)), "frames_shown": overview_frames + frames_in(output)}


def score_exploration(
    output: Output,
    row: Mapping[str, Any] | BoxedRow,
    *,
    usage: Mapping[str, Any],
    costs: ExplorerCosts | None = None,
    grading_mode: GradingMode = "strict_single_letter_boxed",
) -> dict[str, Any]:
    """The result fields of an episode: its last turn's boxed answer, less what asking cost. Raises for no input.

    ``reward_components`` are ``answer`` and ``cost`` (never positive) and sum to ``reward``, which is not below 0.
    """
    result = score_boxed_row(Answer(output).turns[-1].output, row, grading_mode=grading_mode)
    cost = min(result.reward, (costs or ExplorerCosts()).of(usage))
    return {
        **result.to_json(),
        "reward": result.reward - cost,
        "reward_components": {"answer": result.reward, "cost": -cost},
        "usage": dict(usage),
    }
