# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.messages import FrameManifest
from tests.media.conftest import write_clip

TRUTH = {"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "A"}


def row(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**TRUTH, "responses_create_params": {"input": [{"role": "user", "content": list(parts)}]}, **more}


def image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url}


def video(url: str) -> dict[str, Any]:
    return {"type": "input_video", "video_url": url}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a #1 ü.png")
    write_clip(tmp_path / "clip.mp4", frames=8)
    write_clip(tmp_path / "turned.mp4", frames=8, rotate=90)
    write_clip(tmp_path / "uneven.mp4", times_ms=[0, 40, 200, 240, 500])
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.png").write_text("no picture")
    os.mkfifo(tmp_path / "pipe.png")
    return tmp_path


def validate(root: Path, *rows: dict[str, Any], options: tuple[str, ...] = ("--media",)) -> Any:
    file = root / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return CliRunner().invoke(build_app("validate"), ["validate", str(file), *options])


def test_media_that_open_pass(root: Path) -> None:
    manifest = FrameManifest(frame_paths=(str(root / "a #1 ü.png"),)).to_url()
    result = validate(
        root, row(image("a #1 ü.png"), video("clip.mp4")), row(video(manifest)), row(video="clip.mp4")
    )
    assert result.exit_code == 0, result.output
    assert "3 media files opened" in result.stderr


def test_rotation_and_variable_rate_are_told_and_allowed(root: Path) -> None:
    result = validate(root, row(video("turned.mp4")), row(video("uneven.mp4")))
    assert result.exit_code == 0, result.output
    assert "1 rotated" in result.stderr
    assert "1 variable frame rate" in result.stderr


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (image("missing.png"), "cannot be opened"),
        (image("text.png"), "format"),
        (image("pipe.png"), "FIFO"),
        (image("../rows.jsonl"), ""),
        (image("https://example.test/a.png"), ""),
        (video("empty.mp4"), "empty"),
        (video("a #1 ü.png"), "format"),
    ],
)
def test_media_that_do_not_open_are_named_with_their_place(root: Path, part: dict[str, Any], said: str) -> None:
    result = validate(root, row({"type": "input_text", "text": "look"}, part))
    assert result.exit_code == 1
    assert "rows.jsonl:1, message 0, part 1" in result.stdout
    assert said in result.stdout


def test_every_row_that_names_a_bad_file_is_listed(root: Path) -> None:
    result = validate(root, row(image("missing.png")), row(image("missing.png")))
    assert "rows.jsonl:1" in result.stdout
    assert "rows.jsonl:2" in result.stdout
    assert "2 with problems" in result.stderr


def test_what_a_multi_turn_row_shows_later_is_opened_too(root: Path) -> None:
    result = validate(root, row(video="missing.mp4"), row(stream={"frames": ["missing.png"], "chunk": 1}))
    assert "field 'video'" in result.stdout
    assert "field 'stream'" in result.stdout


def test_without_the_flag_nothing_is_opened(root: Path) -> None:
    assert validate(root, row(image("missing.png")), options=()).exit_code == 0


def test_another_root_by_flag(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("rows")
    assert validate(elsewhere, row(video("clip.mp4"))).exit_code == 1
    assert (
        validate(elsewhere, row(video("clip.mp4")), options=("--media", "--media-root", str(root))).exit_code == 0
    )
