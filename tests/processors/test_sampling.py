# SPDX-License-Identifier: Apache-2.0
"""Sampling conventions against indices recorded from the real loaders, and against their stated rules."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.errors import ProcessorSettingsError, RowError, Where
from nemo_gym_video.processors.sampling import CONVENTIONS, sample_frames, tubelet_labels

ROWS = json.loads((Path(__file__).parents[1] / "fixtures/vectors/frame_indices.json").read_text())
NAMES = {"vllm_opencv_nemotron_vl": "vllm", "nemo_rl_torchcodec": "nemo_rl", "qwen2_vl": "qwen2_vl",
         "qwen3_vl": "qwen3_vl"}  # fmt: skip
RECORDED = [(NAMES[key], row, row[key]) for row in ROWS for key in NAMES if key in row]


@pytest.mark.parametrize(("convention", "row", "expected"), RECORDED)
def test_recorded_loader_indices(convention: str, row: dict[str, Any], expected: list[int]) -> None:
    sample = sample_frames(
        convention,
        total=row["total"],
        fps=row["fps"],
        num_frames=row.get("num_frames"),
        target_fps=row.get("target_fps"),
        temporal_patch_size=2,
    )
    assert list(sample.indices) == expected
    assert list(sample.timestamps) == [index / row["fps"] for index in expected]


@pytest.mark.parametrize(
    ("total", "asked", "count"), [(31, 32, 30), (7, 32, 6), (1, 32, 2), (100, 7, 6), (100, 8, 8), (3, 3, 2)]
)
def test_nemo_rl_fills_its_tubelets(total: int, asked: int, count: int) -> None:
    sample = sample_frames("nemo_rl", total=total, fps=30, num_frames=asked, temporal_patch_size=2)
    assert len(sample.indices) == count
    assert sample.indices[0] == 0
    assert sample.indices[-1] == total - 1 or count == 2


def test_nemo_rl_rounds_up_only_when_the_rate_left_room() -> None:
    # 100 frames at 30 fps are 3.33 s; 2.2 fps gives 7 frames, and both clip and request have room for 8.
    sample = sample_frames("nemo_rl", total=100, fps=30, num_frames=32, target_fps=2.2, temporal_patch_size=2)
    assert len(sample.indices) == 8
    assert len(sample_frames("vllm", total=100, fps=30, num_frames=32, target_fps=2.2).indices) == 7


def test_vllm_defaults_and_floor() -> None:
    assert len(sample_frames("vllm", total=100, fps=30).indices) == 32
    assert sample_frames("vllm", total=10, fps=30, num_frames=4, target_fps=0.1).indices == (0,)


def test_qwen2_step_past_the_end_is_pulled_back() -> None:
    # 17 / (17 / 14) is a little over 14 in floating point, so the loader's range has a fifteenth step, to 17.
    indices = sample_frames("qwen2_vl", total=17, fps=30, num_frames=14).indices
    assert indices == (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16)
    assert sample_frames("qwen2_vl", total=16, fps=30, num_frames=14).indices[-1] == 14


def test_qwen2_keeps_the_float32_rounding() -> None:
    differs = 0
    for total in range(4, 400):
        for count in range(4, total, 2):
            step = total / count
            float64 = [int(place * step) for place in range(count)]
            ours = sample_frames("qwen2_vl", total=total, fps=30, num_frames=count).indices[:count]
            differs += list(ours) != float64
    assert differs > 100


@pytest.mark.parametrize("convention", ["qwen2_vl", "qwen3_vl"])
def test_qwen_refuses_a_count_beside_a_rate(convention: str) -> None:
    where = Where(file="r.jsonl", line=3)
    with pytest.raises(ProcessorSettingsError, match=r"^r.jsonl:3: .*a number of frames or a rate, not both"):
        sample_frames(convention, total=300, fps=30, num_frames=8, target_fps=2, where=where)
    assert len(sample_frames(convention, total=300, fps=30).indices) == 20
    assert len(sample_frames(convention, total=300, fps=30, num_frames=8).indices) == 8
    assert len(sample_frames("vllm", total=300, fps=30, num_frames=8, target_fps=2).indices) == 8


@pytest.mark.parametrize("convention", ["qwen2_vl", "qwen3_vl"])
def test_qwen_clamps(convention: str) -> None:
    assert len(sample_frames(convention, total=100_000, fps=30, target_fps=30).indices) in (768, 769)
    assert len(sample_frames(convention, total=1000, fps=30, target_fps=0.01).indices) == 4


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"total": 0}, "total"),
        ({"total": -3}, "total"),
        ({"total": True}, "total"),
        ({"total": 2.5}, "total"),
        ({"fps": 0}, "fps"),
        ({"fps": float("nan")}, "fps"),
        ({"fps": "30"}, "fps"),
        ({"num_frames": 0}, "num_frames"),
        ({"num_frames": 10**12}, "num_frames"),
        ({"target_fps": -1}, "target_fps"),
        ({"temporal_patch_size": 0}, "temporal_patch_size"),
        ({"convention": "nemorl"}, "'nemo_rl'"),
        ({"convention": None}, "convention"),
    ],
)
def test_refused(changed: dict[str, Any], named: str) -> None:
    call: dict[str, Any] = {"convention": "vllm", "total": 100, "fps": 30.0, "num_frames": 8} | changed
    with pytest.raises(RowError, match=named) as caught:
        sample_frames(call.pop("convention"), where=Where(file="r.jsonl", line=3), **call)
    assert str(caught.value).startswith("r.jsonl:3: ")
    assert "\n" not in str(caught.value)


def test_qwen2_refuses_a_clip_shorter_than_a_tubelet() -> None:
    with pytest.raises(RowError, match="qwen2_vl cannot take"):
        sample_frames("qwen2_vl", total=1, fps=30)
    with pytest.raises(RowError, match="qwen2_vl cannot take"):
        sample_frames("qwen2_vl", total=5, fps=30, num_frames=8)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(CONVENTIONS)),
    st.integers(2, 5000),
    st.floats(1, 240),
    st.one_of(st.none(), st.floats(0.1, 60)),
    st.integers(1, 900),
)
def test_indices_are_ordered_and_inside(
    convention: str, total: int, fps: float, target: float | None, count: int
) -> None:
    qwen = convention.startswith("qwen")
    sample = sample_frames(convention, total=total, fps=fps, target_fps=target, num_frames=None if qwen else count)
    indices = sample.indices
    assert indices[0] == 0
    assert all(0 <= left <= right < total for left, right in itertools.pairwise(indices))
    assert len(indices) <= max(769, 900)
    if convention in ("vllm", "nemo_rl"):
        assert len(indices) <= max(count, 2)
    if convention == "nemo_rl":
        assert len(indices) % 2 == 0


def test_labels_cut_the_frame_time_to_milliseconds() -> None:
    # 29.97 fps, frame 8999: the true time is 300.27 s, the label says 296.97.
    assert tubelet_labels((0, 8999), fps=29.97) == (
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 296.97 seconds: ",
    )


def test_labels_name_only_real_frames() -> None:
    labels = tubelet_labels((0, 1, 2), fps=1.0)
    assert labels == (
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 1.00 seconds: ",
        "Frame 3 sampled at 2.00 seconds: ",
    )
    assert tubelet_labels((0, 5), fps=25, temporal_patch_size=1) == (
        "Frame 1 sampled at 0.00 seconds: ",
        "Frame 2 sampled at 0.20 seconds: ",
    )
