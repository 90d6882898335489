# SPDX-License-Identifier: Apache-2.0
"""Questions whose answers are computed from a clip's own pixels or its known scene; wording in ``questions``.

A question is asked only when its answer is clear: the hardest cut is well above the next, the brightest second
well above the others, times are far enough apart. Letters are dealt from a deck, so that every letter is the
answer equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.prepare.synthetic.questions import (
    COLOURS,
    Question,
    QuestionKind,
    question_text,
    second_option,
    time_option,
)
from nemo_gym_video.prepare.synthetic.scene import FPS, Scene

OPTIONS = 4
TIME_GAP = 0.6
"""Least distance of two times among the options, in seconds."""
LIGHT_GAP = 8.0
"""Least distance of the brightest or darkest second from every other, in levels of 255."""
CUT_RATIO = 1.4
"""Least ratio of the hardest cut to every change away from it."""


class LetterDeck:
    """Deals answer places: every run of four draws holds each of A to D once, in seeded order."""

    def __init__(self, seed: int) -> None:
        """``seed`` decides the order."""
        self._rng = np.random.default_rng([seed, 11])
        self._places: list[int] = []

    def deal(self) -> int:
        """The next place, 0 to 3."""
        if not self._places:
            self._places = [int(place) for place in self._rng.permutation(OPTIONS)]
        return self._places.pop()


def arrange(
    kind: QuestionKind, text: str, answer: str, others: Sequence[str], place: int, rng: np.random.Generator
) -> Question:
    """Put the answer at ``place`` among the shuffled others."""
    options = [str(other) for other in rng.permutation(list(others))]
    options.insert(place, answer)
    return Question(kind=kind, text=text, options=tuple(options), answer=place)


def scene_questions(scene: Scene, visible: NDArray[np.bool_], deck: LetterDeck) -> list[Question]:
    """Questions on who enters and leaves when. ``visible`` is bool [frames, sprites] at 24 fps."""
    rng = np.random.default_rng([scene.total, int(visible.sum()), 13])
    duration = scene.total / FPS
    found: list[Question] = []
    enters = [int(np.argmax(visible[:, k])) if visible[:, k].any() else -1 for k in range(len(scene.sprites))]
    leaves = [int(np.flatnonzero(visible[:, k])[-1]) + 1 if visible[:, k].any() else 0 for k in range(len(enters))]
    for sprite, enter, leave in zip(scene.sprites, enters, leaves, strict=True):
        subject = (sprite.colour, sprite.shape)
        times: list[tuple[QuestionKind, int]] = [("enter_time", enter), ("leave_time", leave)]
        for kind, frame in times:
            if 4 <= frame <= scene.total - 4:
                text = question_text(kind, duration_s=duration, subject=subject)
                answer, others = time_options(frame / FPS, duration, rng)
                found.append(arrange(kind, text, answer, others, deck.deal(), rng))
    last = int(np.argmax(enters))
    if enters[last] >= 4 and sum(enter == enters[last] for enter in enters) == 1:
        colour = scene.sprites[last].colour
        here = [sprite.colour for sprite in scene.sprites if sprite.colour != colour]
        rest = [name for name in COLOURS if name != colour and name not in here]
        others = [*here, *(str(name) for name in rng.permutation(rest))][: OPTIONS - 1]
        text = question_text("last_colour", duration_s=duration)
        found.append(arrange("last_colour", text, colour, others, deck.deal(), rng))
    return found


def time_options(seconds: float, duration: float, rng: np.random.Generator) -> tuple[str, list[str]]:
    """The true time and three others, at least ``TIME_GAP`` apart on either side of it."""
    grid = [seconds + step * TIME_GAP for step in range(-40, 41) if step]
    grid = [time for time in grid if 0.1 <= time <= duration - 0.1]
    chosen = rng.permutation(len(grid))[: OPTIONS - 1]
    return time_option(seconds), [time_option(grid[place]) for place in chosen]


def montage_questions(frames: NDArray[np.uint8], deck: LetterDeck, *, seed: Sequence[int]) -> list[Question]:
    """Questions on cuts and light, from the pixels alone; empty when no answer is clear. uint8 [n, h, w, 3]."""
    rng = np.random.default_rng([*seed, 17])
    duration = len(frames) / FPS
    found: list[Question] = []
    cut = _clear_cut(changes(frames))
    if cut is None:
        return []
    answer, others = time_options(cut / FPS, duration, rng)
    text = question_text("hardest_cut", duration_s=duration)
    found.append(arrange("hardest_cut", text, answer, others, deck.deal(), rng))
    light = second_means(frames)
    lights: list[tuple[QuestionKind, NDArray[np.float64]]] = [
        ("brightest_second", light),
        ("darkest_second", -light),
    ]
    for kind, level in lights:
        order = np.argsort(-level)
        if len(level) < OPTIONS or level[order[0]] - level[order[1]] < LIGHT_GAP:
            continue
        others = [second_option(int(second)) for second in rng.permutation(order[1:])[: OPTIONS - 1]]
        text = question_text(kind, duration_s=duration)
        found.append(arrange(kind, text, second_option(int(order[0])), others, deck.deal(), rng))
    return found


def changes(frames: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean absolute difference of each frame to the one before it; entry 0 is 0. Float [n], levels of 255."""
    small = frames[:, ::2, ::2].astype(np.int16)
    return np.array([0.0, *(float(np.abs(b - a).mean()) for a, b in pairwise(small))])


def second_means(frames: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean level of every whole second; float [seconds], levels of 255."""
    level = frames.reshape(len(frames), -1).mean(axis=1)
    return np.array([level[start : start + FPS].mean() for start in range(0, len(level) - FPS + 1, FPS)])


def _clear_cut(change: NDArray[np.float64]) -> int | None:
    best = int(np.argmax(change))
    away = np.abs(np.arange(len(change)) - best) > 3
    clear = change[best] >= CUT_RATIO * change[away].max() and 8 <= best <= len(change) - 8
    return best if clear else None
