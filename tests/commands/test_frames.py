# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from nemo_gym_video.cli import build_app
from nemo_gym_video.errors import NemoGymVideoError

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    return lambda *arguments: CliRunner().invoke(build_app("frames"), ["frames", *map(str, arguments)])


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """40 frames at 20 a second; frame n is a flat grey of level 6 n."""
    path = tmp_path / "a clip #1 100%.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"g": "10", "crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(40):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 6 * number, np.uint8), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 20)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def levels(folder: Path) -> dict[str, int]:
    return {path.name: round(np.asarray(Image.open(path)).mean() / 6) for path in sorted(folder.iterdir())}


def test_frames_and_record_agree(run: Run, clip: Path, tmp_path: Path) -> None:
    result = run(clip, "--num-frames", 8, "--convention", "nemo_rl", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    assert record["size"] == [64, 48]
    assert record["fps"] == 20.0
    assert record["total"] == record["decodable"] == 40
    assert record["indices"] == [0, 6, 11, 17, 22, 28, 33, 39]
    assert record["timestamps"] == [index / 20 for index in record["indices"]]
    assert record["rotation"] == 0
    assert record["variable_rate"] is False
    assert record["decoder"].startswith("PyAV ")
    assert levels(tmp_path / "out") == {f"{place:06d}.png": index for place, index in enumerate(record["indices"])}


def test_vllm_is_the_default_convention_and_truncates(run: Run, clip: Path, tmp_path: Path) -> None:
    record = json.loads(run(clip, "--num-frames", 8, "-o", tmp_path / "out").stdout)
    assert record["indices"] == [0, 5, 11, 16, 22, 27, 33, 39]


def test_start_and_end_bound_the_frames(run: Run, clip: Path, tmp_path: Path) -> None:
    result = run(clip, "--num-frames", 3, "--start", 0.5, "--end", 1.0, "-o", tmp_path / "out")
    record = json.loads(result.stdout)
    assert record["indices"] == [10, 15, 20]
    assert record["timestamps"] == [0.5, 0.75, 1.0]
    assert levels(tmp_path / "out") == {"000000.png": 10, "000001.png": 15, "000002.png": 20}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--start", "5", "--end", "6"], "no frame lies between"),
        (["--start", "1", "--end", "0.5"], "no frame lies between"),
        (["--start", "nan"], "no number of seconds"),
        (["--end", "inf"], "no number of seconds"),
        (["--convention", "nemo_rr"], "unknown sampling convention"),
        (["--num-frames", "0"], "num_frames"),
    ],
)
def test_bad_requests_are_named(run: Run, clip: Path, tmp_path: Path, arguments: list[str], problem: str) -> None:
    result = run(clip, "-o", tmp_path / "out", *arguments)
    assert isinstance(result.exception, NemoGymVideoError)
    assert problem in str(result.exception)
    assert not list(tmp_path.glob("out/*.png"))


def test_files_that_are_no_video_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("hello")
    for name, problem in (("text.mp4", "no video format"), ("missing.mp4", "cannot be opened"), (".", "folder")):
        result = run(tmp_path / name, "-o", tmp_path / "out")
        assert isinstance(result.exception, NemoGymVideoError)
        assert problem in str(result.exception)


def test_a_second_run_replaces_its_frames_but_never_mixes_with_more(run: Run, clip: Path, tmp_path: Path) -> None:
    assert run(clip, "--num-frames", 4, "-o", tmp_path / "out").exit_code == 0
    assert run(clip, "--num-frames", 4, "-o", tmp_path / "out").exit_code == 0
    assert len(levels(tmp_path / "out")) == 4
    result = run(clip, "--num-frames", 2, "-o", tmp_path / "out")
    assert "another run" in str(result.exception)
    (tmp_path / "file").touch()
    assert "cannot be made" in str(run(clip, "-o", tmp_path / "file").exception)
