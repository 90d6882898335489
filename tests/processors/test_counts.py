# SPDX-License-Identifier: Apache-2.0
"""Counts against vectors recorded from real engine and processor code, and what may not be counted."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.processors.counts import count_request, grid_for_count
from nemo_gym_video.processors.families.base import only
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures/processors.json").read_text())
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl class default min3136 max1003520 patch14": ("qwen2_vl_class_default", {}),
    "qwen2_5_vl min3136 max12845056 patch14": ("qwen2_5_vl", {}),
    "qwen2_5_vl 3136/12845056": ("qwen2_5_vl", {}),
    "qwen2_5_vl class default 100352/602112": ("qwen2_5_vl_class_default", {}),
    "qwen3_vl min65536 max16777216 patch16": ("qwen3_vl", {}),
    "qwen3_vl 4096/25165824": ("qwen3_vl", {}),
    "qwen3_vl 4096/25165824 cap_pixels_per_frame": ("qwen3_vl", {"cap_pixels_per_frame": True}),
    "qwen3_vl class default 131072/786432": ("qwen3_vl_class_default", {}),
    "gemma4 max_soft_tokens 280": ("gemma4", {"max_soft_tokens": 280}),
    "internvl 448 tiles<=12 + thumbnail, 256/tile": ("internvl", {}),
}
FAMILIES = ("nemotron_omni", "nemotron_nano_vl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma4")


def image(width: int, height: int) -> MediaSize:
    return MediaSize("image", width, height)


def video(frames: int, width: int, height: int) -> MediaSize:
    return MediaSize("video", width, height, frames)


def count(
    preset: str, *items: MediaSize, overrides: dict[str, Any] | None = None, **state: Any
) -> list[ItemCount]:
    settings = load_settings(preset, overrides=overrides)
    return list(count_request(settings, CountRequest(items=items, **state)).items)


def repeated(value: Any, copies: int) -> list[Any]:
    return [value] * copies


def test_the_fixture_holds_every_recorded_row() -> None:
    assert {name: len(rows) for name, rows in VECTORS.items()} == {
        "nemotron_omni_image": 40,
        "nemotron_omni_video": 14,
        "qwen_image": 27,
        "qwen_video": 25,
        "other_image": 8,
    }


@pytest.mark.parametrize("row", VECTORS["nemotron_omni_image"])
def test_nemotron_images(row: dict[str, Any]) -> None:
    sizes, grids, tokens = row["images_wh"], row["patch_grid_wh"], row["tokens"]
    if isinstance(sizes, dict):
        copies = sizes["repeat"]
        sizes, grids, tokens = repeated(sizes["wh"], copies), repeated(grids, copies), repeated(tokens, copies)
    items = count(
        "nemotron_omni",
        *(image(*size) for size in sizes),
        max_model_len=row["max_model_len"],
        text_tokens=row["counted_text_tokens"],
    )
    assert [item.run_lengths for item in items] == [(length,) for length in tokens]
    assert [item.regions[0].grid for item in items] == [(height, width) for width, height in grids]
    assert [item.regions[0].processed_size for item in items] == [
        (16 * width, 16 * height) for width, height in grids
    ]
    assert sum(item.total for item in items) == row["total"]


@pytest.mark.parametrize("row", VECTORS["nemotron_omni_video"])
def test_nemotron_videos(row: dict[str, Any]) -> None:
    overrides = {
        "video_maintain_aspect_ratio": row["maintain_aspect_ratio"],
        "video_target_num_patches": row["target_num_patches"],
        "video_temporal_patch_size": row["temporal_patch_size"],
    }
    (item,) = count("nemotron_omni", video(row["frames"], *row["wh"]), overrides=overrides)
    assert item.run_lengths == (row["tokens_per_tubelet"],) * row["runs"]
    assert {region.processed_size for region in item.regions} == {tuple(row["resized_wh"])}
    assert item.total == row["total"]
    assert [frame for region in item.regions for frame in range(*region.frames)] == list(range(row["frames"]))


@pytest.mark.parametrize("row", VECTORS["qwen_image"] + VECTORS["qwen_video"])
def test_qwen(row: dict[str, Any]) -> None:
    preset, overrides = PRESETS[row["processor"]]
    size = video(row["frames"], *row["wh"]) if "frames" in row else image(*row["wh"])
    (item,) = count(preset, size, overrides=overrides)
    groups, height, width = row["grid_thw"]
    assert {region.grid for region in item.regions} == {(height, width)}
    assert item.total == row.get("tokens", row.get("tokens_total")) == groups * height * width // 4
    assert len(item.run_lengths) == row.get("runs", 1)


@pytest.mark.parametrize("row", VECTORS["other_image"])
def test_internvl_and_gemma4(row: dict[str, Any]) -> None:
    preset, overrides = PRESETS[row["processor"]]
    (item,) = count(preset, image(*row["wh"]), overrides=overrides)
    assert item.run_lengths == tuple(row["runs"])


# Rows that the reference gives beside the vectors, from the same runs.


@pytest.mark.parametrize(
    ("size", "twelve", "four"),
    [
        ((512, 512), 256, 256),
        ((640, 360), 768, 768),
        ((480, 854), 768, 768),
        ((1920, 1080), 2304, 768),
        ((2400, 1080), 2304, 768),
        ((3840, 2160), 2304, 768),
        ((100, 2000), 3328, 1280),
    ],
)
def test_nano_vl_tiles(size: tuple[int, int], twelve: int, four: int) -> None:
    assert count("nemotron_nano_vl", image(*size))[0].run_lengths == (twelve,)
    assert count("nemotron_nano_vl", image(*size), overrides={"max_num_tiles": 4})[0].run_lengths == (four,)


def test_a_video_without_a_target_is_a_square_frame_by_frame() -> None:
    (item,) = count("nemotron_nano_vl", video(3, 640, 360))
    assert item.run_lengths == (256, 256, 256)
    assert item.regions[0].processed_size == (512, 512)


@pytest.mark.parametrize(
    ("frames", "preset", "overrides", "total"),
    [
        (64, "qwen2_5_vl", {}, 86112),
        (64, "qwen2_5_vl_class_default", {}, 23040),
        (64, "qwen3_vl", {}, 11648),
        (64, "qwen3_vl", {"cap_pixels_per_frame": True}, 11648),
        (64, "qwen3_vl_class_default", {}, 256),
        (128, "qwen2_5_vl", {}, 172224),
        (128, "qwen2_5_vl_class_default", {}, 46080),
        (128, "qwen3_vl", {}, 11520),
        (128, "qwen3_vl_class_default", {}, 192),
    ],
)
def test_long_qwen_videos(frames: int, preset: str, overrides: dict[str, Any], total: int) -> None:
    assert count(preset, video(frames, 1920, 1080), overrides=overrides)[0].total == total


@pytest.mark.parametrize(
    ("size", "small", "large"),
    [((640, 360), 66, 1100), ((1920, 1080), 66, 1100), ((480, 854), 66, 1100), ((2400, 1080), 60, 1078)],
)
def test_gemma4_budgets(size: tuple[int, int], small: int, large: int) -> None:
    assert count("gemma4", image(*size), overrides={"max_soft_tokens": 70})[0].run_lengths == (small,)
    assert count("gemma4", image(*size), overrides={"max_soft_tokens": 1120})[0].run_lengths == (large,)
    assert count("gemma4", video(3, *size))[0].run_lengths == (small,) * 3


def test_internvl_videos_have_a_run_a_frame() -> None:
    (item,) = count("internvl", video(8, 1920, 1080))
    assert item.run_lengths == (256,) * 8


@pytest.mark.parametrize("target", [256, 576, 2304])
def test_other_video_targets(target: int) -> None:
    overrides = {"video_target_num_patches": target}
    square = count("nemotron_omni", video(2, 512, 512), overrides=overrides)[0]
    wide = count("nemotron_omni", video(2, 1920, 1080), overrides=overrides)[0]
    assert (square.total, wide.total) == {256: (64, 60), 576: (144, 144), 2304: (576, 576)}[target]


def test_a_square_target_rounds_its_side_down_to_even() -> None:
    overrides = {"video_target_num_patches": 1000, "video_maintain_aspect_ratio": False}
    (item,) = count("nemotron_omni", video(2, 1920, 1080), overrides=overrides)
    assert item.run_lengths == (225,)


def test_a_target_in_pixels_is_rounded_up_to_whole_patches() -> None:
    video_settings = {"target_num_patches": None, "target_img_size": 500, "maintain_aspect_ratio": False}
    (item,) = count("nemotron_omni", video(2, 1920, 1080), overrides={"video": video_settings})
    assert item.regions[0].processed_size == (512, 512)


def test_without_a_target_a_video_is_square_though_the_aspect_is_to_be_kept() -> None:
    (item,) = count("nemotron_omni", video(2, 1920, 1080), overrides={"video": {"target_num_patches": None}})
    assert item.run_lengths == (256,)


# Laws of a request


def test_aspect_ratio_decides_between_8064_and_8192() -> None:
    size = video(64, 1920, 1080)
    assert count("nemotron_omni", size)[0].run_lengths == (252,) * 32
    off = count("nemotron_omni", size, overrides={"video": {"maintain_aspect_ratio": False}})
    assert off[0].run_lengths == (256,) * 32


def test_images_share_one_budget_and_without_it_they_do_not() -> None:
    images = [image(2400, 1080)] * 16
    joint = count("nemotron_omni", *images, max_model_len=32768)
    assert [item.total for item in joint] == [2010] * 16
    alone = count("nemotron_omni_transformers", *images, max_model_len=32768)
    assert sum(item.total for item in alone) == 40800
    nine = count("nemotron_omni", *[image(1920, 1080)] * 9, max_model_len=16384)
    assert [item.total for item in nine] == [1792] * 9


def test_a_video_does_not_share_the_images_budget() -> None:
    mixed = count("nemotron_omni", image(1920, 1080), video(64, 1920, 1080), image(1920, 1080), max_model_len=4096)
    images = count("nemotron_omni", image(1920, 1080), image(1920, 1080), max_model_len=4096)
    assert [mixed[0], mixed[2]] == images
    assert mixed[1].total == 8064


@pytest.mark.parametrize("text", [0, 604])
def test_text_up_to_604_tokens_changes_nothing(text: int) -> None:
    items = count("nemotron_omni", *[image(2400, 1080)] * 16, max_model_len=32768, text_tokens=text)
    assert {item.total for item in items} == {2010}


def test_text_of_605_tokens_changes_the_counts() -> None:
    items = count("nemotron_omni", *[image(2400, 1080)] * 16, max_model_len=32768, text_tokens=605)
    assert {item.total for item in items} != {2010}


@pytest.mark.parametrize(("rate", "kept"), [(0.5, 4032), (0.7, 2419), (0.75, 2016), (0.9, 806), (0.99, 252)])
def test_pruning_is_said_not_guessed(rate: float, kept: int) -> None:
    (item,) = count("nemotron_omni", video(64, 1920, 1080), pruning_rate=rate)
    assert item.total == 8064
    assert f"keeps {kept} of 8064" in item.notes[0]


def test_pruning_is_noted_by_every_family_and_only_for_videos() -> None:
    for preset in FAMILIES:
        still, moving = count(preset, image(640, 360), video(4, 640, 360), pruning_rate=0.5)
        assert not still.notes
        assert "pruning" in moving.notes[0]
        assert not count(preset, video(4, 640, 360))[0].notes


def test_a_processor_cache_is_noted_where_counts_depend_on_earlier_calls() -> None:
    assert "earlier call" in count("nemotron_omni", image(640, 360), processor_cache=True)[0].notes[0]
    assert not count("nemotron_omni", image(640, 360))[0].notes
    assert not count("qwen3_vl", image(640, 360), processor_cache=True)[0].notes


def test_no_known_family_lets_regions_fuse() -> None:
    for preset in FAMILIES:
        request = CountRequest(items=(image(640, 360),) * 2)
        assert not count_request(load_settings(preset), request).adjacent_regions_can_fuse


def test_the_fingerprint_goes_with_the_settings() -> None:
    plain, same = load_settings("nemotron_omni"), load_settings("nemotron_omni", overrides={"patch_size": 16})
    other = load_settings("nemotron_omni", overrides={"max_num_patches": 13311})
    assert plain.fingerprint == same.fingerprint
    assert plain.fingerprint.startswith("sha256:")
    assert plain.fingerprint != other.fingerprint
    assert count_request(plain, CountRequest(items=())).fingerprint == plain.fingerprint


def test_families_with_equal_values_have_their_own_fingerprint() -> None:
    assert load_settings("qwen2_vl").values() == load_settings("qwen2_5_vl").values()
    assert load_settings("qwen2_vl").fingerprint != load_settings("qwen2_5_vl").fingerprint


# Refusals


@pytest.mark.parametrize("preset", FAMILIES)
@pytest.mark.parametrize(
    ("item", "word"),
    [
        (MediaSize("image", 0, 5), "width"),
        (MediaSize("image", 5, -1), "height"),
        (MediaSize("image", 2**31, 5), "width"),
        (MediaSize("image", True, 5), "width"),
        (MediaSize("image", 5.0, 5), "width"),  # type: ignore[arg-type]
        (MediaSize("image", 5, None), "height"),  # type: ignore[arg-type]
        (MediaSize("image", 5, 5, 2), "one frame"),
        (MediaSize("video", 5, 5, 0), "frames"),
        (MediaSize("video", 5, 5, 100_001), "frames"),
        (MediaSize("audio", 5, 5), "kind"),  # type: ignore[arg-type]
        (MediaSize(["image"], 5, 5), "kind"),  # type: ignore[arg-type]
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(preset: str, item: MediaSize, word: str) -> None:
    with pytest.raises(RowError, match=word) as caught:
        count(preset, image(64, 64), item)
    assert "item 1" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "state",
    [
        {"max_model_len": 0},
        {"max_model_len": True},
        {"max_model_len": 4096.0},
        {"max_model_len": 2**31},
        {"text_tokens": -1},
        {"text_tokens": None},
        {"pruning_rate": 1},
        {"pruning_rate": -0.1},
        {"pruning_rate": float("nan")},
        {"pruning_rate": "0.5"},
    ],
)
def test_a_request_state_that_cannot_be_is_refused_by_name(state: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=next(iter(state))):
        count("nemotron_omni", image(64, 64), **state)


@pytest.mark.parametrize("preset", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_qwen_refuses_aspect_ratios_over_200(preset: str) -> None:
    assert count(preset, image(28 * 200, 28))[0].total > 0
    for size in (image(28 * 200 + 1, 28), image(28, 28 * 200 + 1), video(2, 7000, 34)):
        with pytest.raises(RowError, match="aspect ratio up to 200"):
            count(preset, size)


def test_qwen3_refuses_a_video_of_one_frame_and_qwen2_does_not() -> None:
    with pytest.raises(RowError, match="too few frames"):
        count("qwen3_vl", video(1, 640, 360))
    assert len(count("qwen3_vl", video(2, 640, 360))[0].regions) == 1
    assert count("qwen2_5_vl", video(1, 640, 360))[0].total == 299


def test_elongated_beyond_the_engines_rule_is_refused() -> None:
    with pytest.raises(RowError, match="too elongated"):
        count("nemotron_omni", image(2**31 - 1, 1))
    assert count("gemma4", image(1, 2**31 - 1))[0].run_lengths == (280,)


def test_a_family_of_its_own_is_needed_for_each_count() -> None:
    with pytest.raises(ProcessorSettingsError):
        load_settings("nemotron")


# Grids of reconciled images


def test_the_grid_of_a_shrunk_image_is_found() -> None:
    settings = load_settings("nemotron_omni")
    assert grid_for_count(settings, image(2400, 1080), 2010) == ((60, 134), (2144, 960))
    assert grid_for_count(settings, image(2400, 1080), 2550) == ((68, 150), (2400, 1088))
    assert grid_for_count(settings, image(1920, 1080), 1792) == ((64, 112), (1792, 1024))
    assert grid_for_count(settings, image(640, 360), 240) == ((24, 40), (640, 384))


@pytest.mark.parametrize("row", VECTORS["nemotron_omni_image"])
def test_no_recorded_grid_is_contradicted(row: dict[str, Any]) -> None:
    if isinstance(row["images_wh"], dict):
        cases = [(row["images_wh"]["wh"], row["patch_grid_wh"], row["tokens"])]
    else:
        cases = list(zip(row["images_wh"], row["patch_grid_wh"], row["tokens"], strict=True))
    for size, (width, height), tokens in cases:
        found = grid_for_count(load_settings("nemotron_omni"), image(*size), tokens)
        assert found is None or found[0] == (height, width)


@pytest.mark.parametrize(
    ("preset", "size", "tokens"),
    [
        ("nemotron_omni", image(2400, 1080), 2011),
        ("nemotron_omni", image(2400, 1080), 3000),
        ("nemotron_omni", image(2400, 1080), 0),
        ("nemotron_omni", image(2400, 1080), -4),
        ("nemotron_omni", video(2, 2400, 1080), 2010),
        ("nemotron_omni", image(2**31 - 1, 1), 256),
        ("qwen2_5_vl", image(1920, 1080), 2692),
        ("qwen2_5_vl", image(5700, 28), 204),
        ("internvl", image(1920, 1080), 2305),
        ("gemma4", image(1920, 1080), 265),
    ],
)
def test_no_grid_where_no_budget_gives_the_count(preset: str, size: MediaSize, tokens: int) -> None:
    assert grid_for_count(load_settings(preset), size, tokens) is None


def test_two_grids_of_one_count_are_no_grid() -> None:
    wide = Region(run_lengths=(8,), grid=(2, 16), processed_size=(256, 32))
    tall = Region(run_lengths=(8,), grid=(16, 2), processed_size=(32, 256))
    other = Region(run_lengths=(9,), grid=(6, 6), processed_size=(96, 96))
    assert only([wide, other, wide], 8) == ((2, 16), (256, 32))
    assert only([wide, tall, other], 8) is None
    assert only([wide, tall, other], 9) == ((6, 6), (96, 96))
    assert only([Region(run_lengths=(8,), grid=None, processed_size=None)], 8) is None


@pytest.mark.parametrize(
    ("preset", "tokens", "grid"),
    [
        ("qwen2_5_vl", 2691, (78, 138)),
        ("qwen2_5_vl", 1222, (52, 94)),
        ("qwen3_vl", 2040, (68, 120)),
        ("internvl", 2304, (64, 128)),
        ("gemma4", 264, (36, 66)),
        ("gemma4", 66, (18, 33)),
        ("nemotron_nano_vl", 768, (32, 64)),
    ],
)
def test_grids_of_other_families(preset: str, tokens: int, grid: tuple[int, int]) -> None:
    found = grid_for_count(load_settings(preset), image(1920, 1080), tokens)
    assert found is not None
    assert found[0] == grid


def test_settings_may_be_changed_by_hand_but_not_into_nonsense() -> None:
    settings = load_settings("nemotron_omni")
    assert dataclasses.replace(settings, **{"patch_size": 14}).values()["patch_size"] == 14
    with pytest.raises(ProcessorSettingsError, match="patch_size"):
        dataclasses.replace(settings, **{"patch_size": 0})
