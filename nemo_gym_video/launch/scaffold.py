# SPDX-License-Identifier: Apache-2.0
"""Writes a new environment's folder: a task, configuration, five rows with media made here, a test, a page."""

from __future__ import annotations

import json
import keyword
import os
import re
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.launch.catalogue import environment_names
from nemo_gym_video.messages import image_part, text_part, video_part
from nemo_gym_video.prepare.mcqa_prompt import LETTERS, mcqa_prompt
from nemo_gym_video.prepare.row_parts import agent_ref, user_message
from nemo_gym_video.prepare.synthetic.encode import write_clip
from nemo_gym_video.prepare.synthetic.questions import COLOURS, question_text, second_option
from nemo_gym_video.servers.gym_root import search_root

ROWS = 5
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# What the task files import or define; a task of that name would hide it.
_TAKEN_CLASSES = frozenset({"Answer", "BaseModel", "Episode", "Observation", "Pictures", "Row", "Score", "Task"})
_SECONDS, _FPS, _SIZE = 4, 8, (96, 64)
_DARK, _BRIGHT = 70, 200
_SCENE_COLOURS = ("red", "green", "blue", "yellow")
_PICTURES = 3


def scaffold_environment(name: str, directory: Path, *, multi_turn: bool) -> Path:
    """Write ``directory/environments/name`` and return it. It is there whole or not at all.

    Raises:
        PreparationError: the name cannot be an environment's or is taken, or the folder cannot be written.
    """
    _check_name(name)
    folder = directory.absolute() / "environments" / name
    if os.path.lexists(folder):
        raise PreparationError("the folder exists already", got=str(folder), allowed="another NAME or --dir")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as beside:
            _write(Path(beside) / name, name, multi_turn=multi_turn)
            shutil.move(Path(beside) / name, folder)
    except OSError as error:
        raise PreparationError(f"the folder cannot be written ({error.strerror})", got=str(folder)) from error
    return folder


def class_name(name: str) -> str:
    """The task's class for an environment's name: ``count_cars`` gives ``CountCars``."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    return f"{camel}Task" if camel in _TAKEN_CLASSES or keyword.iskeyword(camel) else camel


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise PreparationError(
            "the name cannot be an environment's",
            got=name,
            allowed="a letter, then letters, digits or _; lower case",
        )
    if name in environment_names([search_root()]):
        raise PreparationError("nemo-gym-video has an environment of this name", got=name, allowed="another NAME")


def _write(folder: Path, name: str, *, multi_turn: bool) -> None:
    words = {
        "name": name,
        "class_name": class_name(name),
        "title": name.replace("_", " ").capitalize(),
        "description": "Pictures that come one a turn" if multi_turn else "Questions about a short clip",
        "modality": "image" if multi_turn else "video",
        "multi_turn": "      multi_turn: true\n" if multi_turn else "",
        "episode_words": ", what later turns show" if multi_turn else "",
    }
    data = folder / "data"
    (data / "media").mkdir(parents=True)
    for template, target in (
        ("task_multi" if multi_turn else "task_single", "task.py"),
        ("config", "config.yaml"),
        ("manifest", "manifest.yaml"),
        ("readme", "README.md"),
        ("test", f"test_{name}.py"),
    ):
        text = files("nemo_gym_video.launch").joinpath("templates", f"{template}.tmpl").read_text("utf-8")
        (folder / target).write_text(Template(text).substitute(words), encoding="utf-8")
    make = _pictures_row if multi_turn else _clip_row
    rows = [{**make(data, number), "agent_ref": agent_ref(f"{name}_agent")} for number in range(ROWS)]
    (data / "example.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _clip_row(data: Path, number: int) -> dict[str, Any]:
    """A clip with one bright second, which the row asks for."""
    bright = number % _SECONDS
    path = f"media/clip_{number}.mp4"
    frames = [_grey(_BRIGHT if index // _FPS == bright else _DARK) for index in range(_SECONDS * _FPS)]
    write_clip(data / path, frames, fps=_FPS)
    question = question_text("brightest_second", duration_s=_SECONDS)
    prompt = mcqa_prompt(question, [second_option(second) for second in range(_SECONDS)])
    return _row([video_part(path), text_part(prompt)], expected=LETTERS[bright])


def _pictures_row(data: Path, number: int) -> dict[str, Any]:
    """A scene in pictures, to each of which one more square has come; the row asks for the last one's colour."""
    order = [_SCENE_COLOURS[(number + step) % len(_SCENE_COLOURS)] for step in range(_PICTURES)]
    paths = [f"media/scene_{number}_{step}.png" for step in range(_PICTURES)]
    for step, path in enumerate(paths):
        _squares(order[: step + 1]).save(data / path)
    question = question_text("last_colour", duration_s=_PICTURES)
    prompt = mcqa_prompt(question, _SCENE_COLOURS)
    expected = LETTERS[_SCENE_COLOURS.index(order[-1])]
    content = [text_part("The picture at 0.00 s."), image_part(paths[0]), text_part(prompt)]
    return _row(content, pictures=paths[1:], expected=expected)


def _row(content: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": [user_message(content)]}, **fields}


def _grey(level: int) -> NDArray[np.uint8]:
    width, height = _SIZE
    return np.full((height, width, 3), level, np.uint8)


def _squares(colours: list[str]) -> Image.Image:
    """Squares side by side on grey, in this order."""
    width, height = _SIZE
    picture = Image.new("RGB", (2 * width, 2 * height), (120, 120, 120))
    draw = ImageDraw.Draw(picture)
    for place, colour in enumerate(colours):
        left = 12 + 60 * place
        draw.rectangle((left, 40, left + 44, 84), fill=COLOURS[colour])
    return picture
