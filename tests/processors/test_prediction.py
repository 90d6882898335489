# SPDX-License-Identifier: Apache-2.0
"""Counts over the calls of a rollout, with the engine's numbers for nine screenshots at 16384."""

from nemo_gym_video.processors.prediction import CallState, predict_items
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import MediaSize, Region

SETTINGS = load_settings("nemotron_omni")
SHOT = MediaSize("image", 1920, 1080)
CLIP = MediaSize("video", 1920, 1080, 6)


def totals(predicted: list[tuple[Region, ...]]) -> list[int]:
    return [sum(region.total for region in regions) for regions in predicted]


def test_one_call_shares_the_budget() -> None:
    state = CallState(max_model_len=16384)
    assert totals(predict_items([[SHOT]] * 8, [0] * 8, SETTINGS, state)) == [2040] * 8
    assert totals(predict_items([[SHOT]] * 9, [0] * 9, SETTINGS, state)) == [1792] * 9


def test_without_a_cache_later_calls_budget_everything_again() -> None:
    off = CallState(max_model_len=16384)
    assert totals(predict_items([[SHOT]] * 10, list(range(10)), SETTINGS, off)) == [2040] * 8 + [1792, 1620]
    on = CallState(max_model_len=16384, processor_cache=True)
    assert totals(predict_items([[SHOT]] * 10, list(range(10)), SETTINGS, on)) == [2040] * 10


def test_turns_may_come_in_any_order() -> None:
    off = CallState(max_model_len=16384)
    late_first = predict_items([[SHOT], *[[SHOT]] * 8], [1, *[0] * 8], SETTINGS, off)
    assert totals(late_first) == [1792] + [2040] * 8


def test_a_video_sent_as_images_has_a_region_a_frame() -> None:
    state = CallState(max_model_len=16384)
    (regions,) = predict_items([[SHOT] * 3], [0], SETTINGS, state)
    assert [region.frames for region in regions] == [(0, 1), (1, 2), (2, 3)]
    assert [region.run_lengths for region in regions] == [(2040,)] * 3
    (regions,) = predict_items([[CLIP]], [0], SETTINGS, state)
    assert [region.frames for region in regions] == [(0, 2), (2, 4), (4, 6)]


def test_nothing_to_predict() -> None:
    assert predict_items([], [], SETTINGS, CallState()) == []
