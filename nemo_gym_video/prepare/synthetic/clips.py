# SPDX-License-Identifier: Apache-2.0
"""Clips with known truth in the published layouts: SA-V native files, and CapRL-shaped questions about them.

``synthesize`` writes under one folder::

    sav_train/sav_000/{id}.mp4, {id}_manual.json   24 fps H.264, masks every 4th frame as compressed COCO RLE
    expressions.json                               words for every object ("the red circle")
    montage/{id}.mp4                               real footage cut together, for questions on time and light
    caprl.jsonl                                    one line a video: captioning prompt and its questions

Everything follows from the seed; the bytes are stable for one version of the libraries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.prepare.mcqa_prompt import option_lines
from nemo_gym_video.prepare.sav.sav_published import STRIDE
from nemo_gym_video.prepare.synthetic import backgrounds
from nemo_gym_video.prepare.synthetic.ask import LetterDeck, montage_questions, scene_questions
from nemo_gym_video.prepare.synthetic.encode import ClipForm, write_clip
from nemo_gym_video.prepare.synthetic.questions import Question, expression
from nemo_gym_video.prepare.synthetic.scene import FPS, Scene, SpriteTiming, design_scene, paint
from nemo_gym_video.prepare.whole_files import dump_line, write_text
from nemo_gym_video.tasks.tracking.masks import RleMask, encode

SYNTHETIC = "synthetic"
"""What rows made from these clips give as their data set."""

CAPTION_PROMPT = "<video>\nDescribe the video in detail."


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSet:
    """Where the native files went: ``sav_root``, the questions file, the expressions file, and the video ids."""

    root: Path
    sav_root: Path
    questions: Path
    expressions: Path
    scene_ids: tuple[str, ...]
    montage_ids: tuple[str, ...]


HARD: dict[str, ClipForm] = {
    "rotated": ClipForm(rotation=90),
    "variable_rate": ClipForm(uneven=True),
    "late_start": ClipForm(start_s=2.5),
    "long": ClipForm(),
}
"""Scenes in files that are odd, by the name that is their video id; ``long`` lasts ``LONG`` times as long."""

LONG = 8


def synthesize(
    output_dir: Path,
    *,
    seed: int = 0,
    scenes: int = 6,
    montages: int = 4,
    size: tuple[int, int] = (320, 180),
    seconds: float = 4.5,
    real: bool | None = None,
    hard: bool = False,
) -> SyntheticSet:
    """Render ``scenes`` tracking clips and ``montages`` question clips under ``output_dir``.

    ``real`` chooses real footage (every second scene, every montage); None takes it when it is installed.
    Without it, montages are cut from rendered footage. ``hard`` adds the scenes of ``HARD``, without questions.
    """
    real = backgrounds.real_clips_installed() if real is None else real
    deck, clips = LetterDeck(seed), output_dir / "sav_train"
    lines, expressions = [], []
    scene_ids = tuple(f"sav_{index:06d}" for index in range(1, scenes + 1))
    for index, video_id in enumerate(scene_ids):
        path = clips / f"sav_{index // 1000:03d}" / f"{video_id}.mp4"
        scene = default_scene([seed, index], size=size, seconds=seconds)
        background = scene_footage([seed, index], size=size, real=real and index % 2 == 1)
        visible = write_scene(path, scene, background)
        lines.append(_caption_row(path, output_dir, scene_questions(scene, visible, deck)))
        expressions += _expressions(video_id, scene)
    if hard:
        expressions += _write_hard(clips / "hard", seed, size=size, seconds=seconds)
    montage_ids = tuple(f"montage_{index:06d}" for index in range(1, montages + 1))
    for index, video_id in enumerate(montage_ids):
        path = output_dir / "montage" / f"{video_id}.mp4"
        frames, questions = ask_montage([seed, 1 << 20, index], size=size, seconds=seconds, real=real, deck=deck)
        write_clip(path, iter(frames), fps=FPS)
        lines.append(_caption_row(path, output_dir, questions))
    asked, words = output_dir / "caprl.jsonl", output_dir / "expressions.json"
    write_text(asked, "".join(dump_line(line) for line in lines))
    write_text(words, json.dumps(expressions, indent=1) + "\n")
    return SyntheticSet(root=output_dir, sav_root=clips, questions=asked, expressions=words,
                        scene_ids=scene_ids, montage_ids=montage_ids)  # fmt: skip


def _write_hard(folder: Path, seed: int, *, size: tuple[int, int], seconds: float) -> list[dict[str, Any]]:
    """Write the clips of ``HARD``; returns the expressions of their shapes."""
    expressions = []
    for index, (video_id, form) in enumerate(HARD.items()):
        scene = hard_scene(video_id, seed, size=size, seconds=seconds)
        footage = scene_footage([seed, index], size=size, real=False)
        write_scene(folder / f"{video_id}.mp4", scene, footage, form)
        expressions += _expressions(video_id, scene)
    return expressions


def hard_scene(video_id: str, seed: int, *, size: tuple[int, int], seconds: float) -> Scene:
    """The scene of one clip of ``HARD``."""
    length = seconds * LONG if video_id == "long" else seconds
    return default_scene([seed, 1 << 16, list(HARD).index(video_id)], size=size, seconds=length)


def _expressions(video_id: str, scene: Scene) -> list[dict[str, Any]]:
    return [
        {"video_id": video_id, "object_id": number, "expression": expression(sprite.colour, sprite.shape)}
        for number, sprite in enumerate(scene.sprites)
    ]


def default_scene(seed: list[int], *, size: tuple[int, int], seconds: float) -> Scene:
    """Three shapes: one stays, one leaves late, one enters after the start."""
    total = round(seconds * FPS)
    rng = np.random.default_rng([*seed, 7])
    timings = [
        SpriteTiming(),
        SpriteTiming(leave=int(total * rng.uniform(0.6, 0.75))),
        SpriteTiming(enter=int(total * rng.uniform(0.15, 0.4))),
    ]
    order = rng.permutation(3)
    return design_scene(seed, size=size, total=total, timings=[timings[place] for place in order])


def scene_footage(seed: list[int], *, size: tuple[int, int], real: bool) -> Iterator[NDArray[np.uint8]]:
    """Background of one scene: a window of a real clip, or rendered texture."""
    if not real:
        return backgrounds.rendered([*seed, 3], size=size)
    rng = np.random.default_rng([*seed, 5])
    name = backgrounds.REAL_CLIPS[int(rng.integers(len(backgrounds.REAL_CLIPS)))]
    return backgrounds.real_window(name, size=size, start=int(rng.integers(60)))


def ask_montage(
    seed: list[int], *, size: tuple[int, int], seconds: float, real: bool, deck: LetterDeck
) -> tuple[NDArray[np.uint8], list[Question]]:
    """Draw montages until one has questions with a clear answer; the seed alone decides how many draws."""
    total = round(seconds * FPS)
    for attempt in range(200):
        draw = [*seed, attempt]
        source = backgrounds.REAL_CLIPS if real else ()
        frames = backgrounds.montage(draw, size=size, total=total, fps=FPS, segments=5, clips=source)
        questions = montage_questions(frames, deck, seed=draw)
        if questions:
            return frames, questions
    raise AssertionError("no montage of 200 had a question with a clear answer")


def write_scene(
    path: Path, scene: Scene, background: Iterator[NDArray[np.uint8]], form: ClipForm | None = None
) -> NDArray[np.bool_]:
    """Write ``{id}.mp4`` and ``{id}_manual.json`` of one scene; returns visibility, bool [frames, sprites]."""
    cells: list[list[RleMask]] = []
    visible: list[NDArray[np.bool_]] = []

    def frames() -> Iterator[NDArray[np.uint8]]:
        for index, (pixels, masks) in enumerate(paint(scene, background)):
            visible.append(masks.any(axis=(1, 2)))
            if index % STRIDE == 0:
                cells.append([encode(mask) for mask in masks])
            yield pixels

    write_clip(path, frames(), fps=FPS, form=form)
    annotation = manual_annotation(path.stem, scene, cells)
    write_text(path.with_name(f"{path.stem}_manual.json"), json.dumps(annotation))
    return np.stack(visible)


def manual_annotation(video_id: str, scene: Scene, cells: list[list[RleMask]]) -> dict[str, Any]:
    """The content of ``{id}_manual.json``, with the keys of the published files; ``cells`` [annotated][object]."""
    width, height = scene.size
    area = np.array([[mask.area for mask in frame] for frame in cells])
    frames, objects = area.shape
    seen = area > 0
    mean_area = [float(area[:, k][seen[:, k]].mean()) if seen[:, k].any() else 0.0 for k in range(objects)]
    share = [value / (height * width) for value in mean_area]
    return {
        "video_id": video_id,
        "video_duration": scene.total / FPS,
        "video_frame_count": float(scene.total),
        "video_height": float(height),
        "video_width": float(width),
        "video_resolution": float(height * width),
        "video_environment": "Indoor",
        "video_split": "train",
        "masklet": [[mask.to_coco() for mask in frame] for frame in cells],
        "masklet_id": list(range(objects)),
        "masklet_size_rel": share,
        "masklet_size_abs": mean_area,
        "masklet_size_bucket": ["small" if value < 0.01 else "medium" for value in share],
        "masklet_visibility_changes": [int(np.count_nonzero(np.diff(seen[:, k]))) for k in range(objects)],
        "masklet_first_appeared_frame": [
            float(np.argmax(seen[:, k])) if seen[:, k].any() else 0.0 for k in range(objects)
        ],
        "masklet_frame_count": [frames] * objects,
        "masklet_edited_frame_count": [frames] * objects,
        "masklet_type": ["manual"] * objects,
        "masklet_stability_score": [[None] * objects for _ in range(frames)],
        "masklet_num": objects,
    }


def _caption_row(path: Path, root: Path, questions: list[Question]) -> dict[str, Any]:
    """One CapRL-Video-QA line: a captioning prompt, one video, the questions as ground truth."""
    return {
        "prompt": [{"role": "user", "content": CAPTION_PROMPT}],
        "videos": [path.relative_to(root).as_posix()],
        "data_source": "video_caption_rl",
        "reward_model": {
            "ground_truth": [
                {"question": item.text, "choices": option_lines(item.options).split("\n"), "answer": item.letter}
                for item in questions
            ]
        },
    }
