# SPDX-License-Identifier: Apache-2.0
"""What two settings differ in, in words."""

from typing import Any

import pytest

from nemo_gym_video.processors.differences import diff_settings
from nemo_gym_video.processors.presets import load_settings


def lines(left: str, right: str, overrides: dict[str, Any] | None = None) -> list[str]:
    return [str(entry) for entry in diff_settings(load_settings(left), load_settings(right, overrides=overrides))]


def test_equal_settings_have_no_difference() -> None:
    assert lines("nemotron_omni", "nemotron_omni", {"patch_size": 16}) == []


@pytest.mark.parametrize(
    ("overrides", "setting", "effect"),
    [
        ({"video": {"maintain_aspect_ratio": False}}, "video_maintain_aspect_ratio: true -> false",
         "64 frames of 1920x1080: 8064 -> 8192 tokens (32 x 252 -> 32 x 256)"),
        ({"video_temporal_patch_size": 1}, "video_temporal_patch_size: 2 -> 1", "8064 -> 16128 tokens"),
        ({"joint_image_budget": False}, "joint_image_budget: true -> false",
         "16 images of 2400x1080 at 32768: 32160 -> 40800 tokens (16 x 2010 -> 16 x 2550)"),
        ({"max_num_patches": 4096}, "max_num_patches: 13312 -> 4096", "an image of 1920x1080: 2040 -> 1008"),
        ({"max_model_len": 32768}, "max_model_len: 16384 -> 32768", "16 images of 2400x1080: 16128 -> 32160"),
        ({"image_token_id": 18}, "image_token_id: null -> 18", "no effect on the counts"),
    ],
)  # fmt: skip
def test_one_difference_is_one_line_with_its_effect(overrides: dict[str, Any], setting: str, effect: str) -> None:
    (line,) = lines("nemotron_omni", "nemotron_omni", overrides)
    assert line.startswith(setting + "; ")
    assert effect in line
    assert "\n" not in line


def test_each_setting_is_shown_alone() -> None:
    changed = {"video_maintain_aspect_ratio": False, "max_num_patches": 4096}
    found = lines("nemotron_omni", "nemotron_omni", changed)
    assert len(found) == 2
    assert not any("8192" in line and "1008" in line for line in found)


def test_settings_that_contradict_alone_are_shown_together() -> None:
    target = {"video": {"target_num_patches": None, "target_img_size": 256}}
    found = lines("nemotron_omni", "nemotron_omni", target)
    assert [line.split(":")[0] for line in found] == ["video_target_num_patches", "video_target_img_size"]
    assert found[1].endswith("(with the other differences)")


def test_another_family_is_one_difference() -> None:
    (line,) = lines("qwen2_5_vl", "qwen3_vl")
    assert line.startswith("family: qwen2_5_vl -> qwen3_vl; ")
    assert "86112 -> 11648" in line


def test_a_refusal_is_an_effect() -> None:
    (line,) = lines("qwen3_vl", "qwen3_vl", {"temporal_patch_size": 3})
    assert "refused" in line or "->" in line
