# SPDX-License-Identifier: Apache-2.0
"""``gym-video sample`` as it is run: by convention, by loader, and by what the engine goes by."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.errors import NemoGymVideoError

CLIP = ("--total", "305", "--fps", "5")


def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(build_app("sample"), ["sample", *arguments], input=stdin, env={"COLUMNS": "80"})
    if isinstance(result.exception, NemoGymVideoError):
        return 1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def answer(*arguments: str) -> dict[str, Any]:
    code, out = run(*arguments)
    assert code == 0, out
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_convention_is_vllm_unless_named() -> None:
    assert answer(*CLIP) == answer("--convention", "vllm", *CLIP)
    assert set(answer(*CLIP)) == {"indices", "timestamps"}
    assert len(answer(*CLIP)["indices"]) == 32


def test_a_loader_by_name() -> None:
    found = answer("--loader", "qwen3_vl", "--target-fps", "1", *CLIP)
    assert len(found["indices"]) == 61
    assert json.loads(found["media_io_kwargs"]) == {"video": {"video_backend": "qwen3_vl", "fps": 1.0}}


def test_the_printed_flags_give_the_same_frames() -> None:
    found = answer("--loader", "opencv", "--num-frames", "7", *CLIP)
    assert answer("--media-io-kwargs", found["media_io_kwargs"], *CLIP) == found


def test_the_checkpoint_decides_loader_and_second_sampling() -> None:
    found = answer("--video-processor", "Qwen3VLVideoProcessor", "--total", "30", "--fps", "30")
    assert (found["loader"], found["indices"]) == ("qwen3_vl", [0, 10, 19, 29])
    uniform = '{"video": {"video_backend": "opencv", "num_frames": 32}}'
    twice = answer("--video-processor", "Qwen3VLVideoProcessor", "--media-io-kwargs", uniform,
                   "--total", "30", "--fps", "30")  # fmt: skip
    assert (twice["loaded"], twice["do_sample_frames"], twice["indices"]) == (30, True, [0, 10, 19, 29])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--loader", "qwen3_vl", "--num-frames", "16", "--target-fps", "1"), "not both"),
        (("--convention", "qwen3_vl", "--num-frames", "16", "--target-fps", "1"), "not both"),
        (("--loader", "qwen"), "did you mean"),
        (("--loader", "qwen3_vl", "--convention", "vllm"), "got 'convention'"),
        (("--loader", "opencv", "--media-io-kwargs", "{}"), "two places"),
        (("--media-io-kwargs", "{"), "not valid JSON"),
        (("--video-processor", "GlmgaVideoProcessor"), "cannot be predicted"),
        (("--video-processor", "Molmo2VideoProcessor"), "sampled again"),
        (("--loader", "openpangu"), "fails without num_frames"),
    ],
)
def test_refused(arguments: tuple[str, ...], named: str) -> None:
    code, out = run(*arguments, *CLIP)
    assert code == 1
    assert named in out


def test_a_bad_line_costs_its_line() -> None:
    lines = [
        {"loader": "glm46v", "total": 3, "fps": 59.94},
        {"loader": "glm46v", "total": 63, "fps": 5.0},
        {"loader": "qwen2_vl", "total": 30, "fps": 30, "min_frames": 8},
        {"loader": "qwen2_vl", "total": 30, "fps": 30, "frames": 8},
        {"loader": "qwen2_vl", "fps": 30},
        {"video_processor": 3, "total": 30, "fps": 30},
    ]
    code, out = run("--jsonl", stdin="".join(json.dumps(line) + "\n" for line in lines))
    short, whole, bounded, unknown, lacking, typed = map(json.loads, out.splitlines())
    assert code == 1
    assert short["error"].startswith("stdin:1: the engine's loader glm46v fails on this clip")
    assert whole["indices"] == list(range(63))
    assert len(bounded["indices"]) == 8
    assert "'frames'" in unknown["error"]
    assert "lacks 'total'" in lacking["error"]
    assert typed["error"].startswith("stdin:6: video_processor is not a class name")
