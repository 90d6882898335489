# SPDX-License-Identifier: Apache-2.0
"""Presets, overrides and their refusals."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.errors import NemoGymVideoError, ProcessorSettingsError
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.presets import load_settings, preset_names, read_settings

OMNI = {
    "patch_size": 16,
    "downsample_ratio": 0.5,
    "min_num_patches": 1024,
    "max_num_patches": 13312,
    "max_model_len": 16384,
    "video_target_num_patches": 1024,
    "video_maintain_aspect_ratio": True,
    "video_temporal_patch_size": 2,
}


def values(preset: str, overrides: dict[str, Any] | None = None) -> dict[str, object]:
    return load_settings(preset, overrides=overrides).values()


@pytest.mark.parametrize(
    ("preset", "released"),
    [
        ("nemotron_omni", OMNI),
        ("nemotron_nano_vl", {"force_image_size": 512, "max_num_tiles": 12, "video_temporal_patch_size": 1}),
        ("qwen2_vl", {"min_pixels": 3136, "max_pixels": 12845056, "video_max_pixels": 12845056, "patch_size": 14}),
        ("qwen2_5_vl", {"min_pixels": 3136, "max_pixels": 12845056, "video_min_pixels": 3136}),
        (
            "qwen2_5_vl_class_default",
            {"max_pixels": 1003520, "video_min_pixels": 100352, "video_max_pixels": 602112},
        ),
        ("qwen3_vl", {"min_pixels": 65536, "max_pixels": 16777216, "video_min_pixels": 4096, "patch_size": 16}),
        ("qwen3_vl", {"video_max_pixels": 25165824, "max_video_tokens": 768}),
        ("qwen3_vl_class_default", {"video_min_pixels": 131072, "video_max_pixels": 786432}),
        ("internvl", {"tile_width": 448, "max_patches": 12, "image_seq_length": 256}),
        ("gemma4", {"max_soft_tokens": 280, "video_max_soft_tokens": 70, "pooling_kernel_size": 3}),
    ],
)
def test_presets_have_the_released_values(preset: str, released: dict[str, object]) -> None:
    assert released.items() <= values(preset).items()


def test_every_preset_loads_but_the_one_that_needs_a_folder() -> None:
    for name in preset_names():
        if name == "hf":
            with pytest.raises(ProcessorSettingsError, match="needs a folder"):
                load_settings(name)
        else:
            assert load_settings(name).family in name


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ({"video": {"target_num_patches": 256}}, {"video_target_num_patches": 256}),
        ({"video": {"maintain_aspect_ratio": False}}, {"video_maintain_aspect_ratio": False}),
        ({"video": {"temporal_patch_size": 4}}, {"video_temporal_patch_size": 4}),
        ({"video_target_num_patches": 256}, {"video_target_num_patches": 256}),
        ({"vision_config": {"video_target_num_patches": 256}}, {"video_target_num_patches": 256}),
        ({"vision_config": {"args": {"max_num_patches": 4096}}}, {"max_num_patches": 4096}),
        ({"image": {"min_num_patches": 64}, "video": {}}, {"min_num_patches": 64}),
        ({"images_kwargs": {"max_num_patches": 0}}, {"max_num_patches": 0}),
        ({"downsample_ratio": 1}, {"downsample_ratio": 1.0}),
        ({"video": {"target_num_patches": None, "target_img_size": 256}},
         {"video_target_num_patches": None, "video_target_img_size": 256}),
        ({"patch_size": 16, "vision_config": {"patch_size": 16}}, {}),
    ],
)  # fmt: skip
def test_a_partial_override_leaves_its_siblings(overrides: dict[str, Any], changed: dict[str, object]) -> None:
    assert values("nemotron_omni", overrides) == values("nemotron_omni") | changed


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ({"max_pixels": 602112}, {"max_pixels": 602112, "video_max_pixels": 602112}),
        ({"size": {"longest_edge": 602112}}, {"max_pixels": 602112, "video_max_pixels": 602112}),
        ({"video": {"max_pixels": 602112}}, {"video_max_pixels": 602112}),
        ({"image": {"size": {"longest_edge": 602112}}}, {"max_pixels": 602112}),
        ({"video_max_pixels": 602112}, {"video_max_pixels": 602112}),
        ({"max_pixels": 602112, "videos_kwargs": {"max_pixels": 5000}},
         {"max_pixels": 602112, "video_max_pixels": 5000}),
        ({"videos_kwargs": {"max_pixels": 5000}, "max_pixels": 602112},
         {"max_pixels": 602112, "video_max_pixels": 5000}),
        ({"vision_config": {"spatial_merge_size": 4}}, {"merge_size": 4}),
    ],
)  # fmt: skip
def test_pixel_bounds_count_for_both_kinds_unless_said(
    overrides: dict[str, Any], changed: dict[str, object]
) -> None:
    assert values("qwen2_5_vl", overrides) == values("qwen2_5_vl") | changed


@pytest.mark.parametrize(
    ("preset", "overrides", "words"),
    [
        (
            "nemotron_omni",
            {"video_target_num_patchs": 2},
            ("video_target_num_patchs", "'video_target_num_patches'"),
        ),
        ("nemotron_omni", {"video": {"maintain_aspect": True}}, ("video.maintain_aspect_ratio",)),
        (
            "nemotron_omni",
            {"vision_config": {"args": {"maxnumpatches": 9}}},
            ("vision_config.args.max_num_patches",),
        ),
        ("nemotron_omni", {"max_pixels": 9}, ("unknown", "max_pixels", "max_num_patches")),
        ("nemotron_omni", {"video": 3}, ("'video' is a block",)),
        ("nemotron_omni", {"video": {"target_num_patches": {"value": 3}}}, ("unknown",)),
        ("nemotron_omni", {"patch_size": 0}, ("patch_size", "got 0", ">= 1")),
        ("nemotron_omni", {"patch_size": -16}, ("patch_size",)),
        ("nemotron_omni", {"patch_size": True}, ("patch_size", "an integer")),
        ("nemotron_omni", {"patch_size": 16.0}, ("patch_size", "an integer")),
        ("nemotron_omni", {"patch_size": "16"}, ("patch_size", "an integer")),
        ("nemotron_omni", {"patch_size": None}, ("patch_size", "null")),
        ("nemotron_omni", {"patch_size": [16]}, ("patch_size",)),
        ("nemotron_omni", {"downsample_ratio": 0}, ("downsample_ratio", "> 0")),
        ("nemotron_omni", {"downsample_ratio": 1.5}, ("downsample_ratio", "<= 1")),
        ("nemotron_omni", {"downsample_ratio": float("nan")}, ("downsample_ratio", "nan")),
        ("nemotron_omni", {"downsample_ratio": True}, ("downsample_ratio",)),
        ("nemotron_omni", {"downsample_ratio": 10**400}, ("downsample_ratio",)),
        ("nemotron_omni", {"downsample_ratio": 0.3}, ("downsample_ratio", "whole")),
        ("nemotron_omni", {"video_target_num_patches": 0}, ("video_target_num_patches", ">= 1")),
        ("nemotron_omni", {"video_temporal_patch_size": 0}, ("video_temporal_patch_size",)),
        ("nemotron_omni", {"video_maintain_aspect_ratio": 1}, ("video_maintain_aspect_ratio", "true or false")),
        ("nemotron_omni", {"video_maintain_aspect_ratio": "true"}, ("video_maintain_aspect_ratio",)),
        ("nemotron_omni", {"max_num_patches": 1023}, ("max_num_patches", "min_num_patches")),
        ("nemotron_omni", {"max_num_patches": -1}, ("max_num_patches",)),
        ("nemotron_omni", {"video_target_img_size": 512}, ("both set", "null for the other")),
        ("nemotron_omni", {"min_num_patches": 4, "image": {"min_num_patches": 5}}, ("set twice",)),
        ("nemotron_nano_vl", {"force_image_size": 500}, ("force_image_size", "multiples of 32")),
        ("nemotron_nano_vl", {"max_num_tiles": 0}, ("max_num_tiles",)),
        ("qwen2_5_vl", {"min_pixels": 10**9}, ("min_pixels", "min <= max")),
        ("qwen3_vl", {"video": {"max_pixels": 4095}}, ("video_max_pixels", "min <= max")),
        ("qwen3_vl", {"max_pixels": 70000, "size": {"longest_edge": 80000}}, ("set twice",)),
        ("qwen3_vl", {"min_pixel": 4}, ("min_pixels",)),
        ("internvl", {"min_patches": 13}, ("max_patches", "min <= max")),
        ("gemma4", {"max_soft_tokens": 281}, ("max_soft_tokens", "70 or 140")),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(
    preset: str, overrides: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ProcessorSettingsError) as caught:
        load_settings(preset, overrides=overrides)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("overrides", [[], 3, "x", [("patch_size", 16)]])
def test_overrides_must_be_an_object(overrides: Any) -> None:
    with pytest.raises(ProcessorSettingsError, match="no object"):
        load_settings("nemotron_omni", overrides=overrides)


def test_an_override_key_must_be_a_string() -> None:
    with pytest.raises(ProcessorSettingsError, match="no string"):
        load_settings("nemotron_omni", overrides={16: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(("name", "near"), [("nemotron_omnni", "nemotron_omni"), ("qwen3vl", "qwen3_vl")])
def test_an_unknown_preset_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ProcessorSettingsError, match=f"did you mean '{near}'"):
        load_settings(name)


@pytest.mark.parametrize("name", ["", "a\0b", "no/such/folder", "x" * 5000])
def test_a_name_that_is_neither_preset_nor_folder_is_refused(name: str) -> None:
    with pytest.raises(ProcessorSettingsError, match="unknown processor preset or folder"):
        load_settings(name)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ProcessorSettingsError, match="did you mean 'gemma4'"):
        load_settings("gemma4", family="gema4")


def test_sources_say_where_a_value_came_from() -> None:
    loaded = read_settings("nemotron_omni", overrides={"video": {"target_num_patches": 256}})
    assert loaded.sources["video_target_num_patches"] == "overrides: video.target_num_patches"
    assert loaded.sources["min_num_patches"] == "preset nemotron_omni"
    assert loaded.sources["patch_size"] == "default"


@pytest.mark.parametrize("preset", sorted(set(preset_names()) - {"hf"}))
def test_what_is_rendered_for_a_trainer_loads_into_the_same_settings(preset: str) -> None:
    chosen = load_settings(preset)
    rendered: dict[str, Any] = chosen.trainer_settings()
    assert rendered.pop("fingerprint") == chosen.fingerprint
    assert rendered.pop("family") == chosen.family
    assert rendered.pop("rule_version") == chosen.rule_version
    assert type(chosen)(**rendered) == chosen


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("nemotron_omni", {}),
        ("nemotron_omni", {"max_num_patches": 4096, "patch_size": 14, "video_maintain_aspect_ratio": False}),
        (
            "nemotron_omni",
            {"downsample_ratio": 0.25, "video": {"target_num_patches": 400, "temporal_patch_size": 4}},
        ),
        ("nemotron_nano_vl", {"max_num_tiles": 4, "use_thumbnail": False, "force_image_size": 256}),
        ("qwen2_vl", {"max_pixels": 602112}),
        ("qwen3_vl", {"max_pixels": 602112, "video": {"max_pixels": 5000}}),
        ("internvl", {"max_patches": 4}),
    ],
)
def test_engine_arguments_carry_every_change_to_the_engine(preset: str, changed: dict[str, Any]) -> None:
    chosen = load_settings(preset, overrides=changed)
    arguments: dict[str, Any] = chosen.engine_arguments()
    told = {**arguments.get("hf_overrides", {}), **arguments.get("mm_processor_kwargs", {})}
    assert load_settings(preset, overrides=told) == chosen


def test_the_engine_is_told_to_keep_counts_reproducible() -> None:
    arguments = load_settings("nemotron_omni", overrides={"max_model_len": 32768}).engine_arguments()
    assert arguments["max_model_len"] == 32768
    assert arguments["mm_processor_cache_gb"] == 0
    assert arguments["video_pruning_rate"] == 0.0


def test_markers_and_ids() -> None:
    nemotron = load_settings("nemotron_omni")
    assert nemotron.media_token_ids == (18,)
    assert (nemotron.tokens.start_id, nemotron.tokens.end_id) == (19, 20)
    assert {"<image>", "<img>", "</img>", "<video>"} <= set(nemotron.placeholder_strings)
    assert load_settings("qwen3_vl").media_token_ids == (151655, 151656)
    assert load_settings("internvl", overrides={"image_token_id": 92546}).media_token_ids == (92546,)


def test_an_id_is_no_part_of_the_fingerprint() -> None:
    plain, told = load_settings("nemotron_omni"), load_settings("nemotron_omni", overrides={"image_token_id": 18})
    assert plain != told
    assert plain.fingerprint == told.fingerprint


def test_tubelets() -> None:
    sizes = {preset: load_settings(preset).temporal_patch_size for preset in preset_names() if preset != "hf"}
    assert sizes["nemotron_omni"] == sizes["qwen3_vl"] == sizes["qwen2_vl"] == 2
    assert sizes["nemotron_nano_vl"] == sizes["internvl"] == sizes["gemma4"] == 1


def test_every_family_is_registered_under_its_own_name() -> None:
    assert all(kind.family == name for name, kind in FAMILIES.items())
    names = preset_names()
    assert len(names) == len(set(names))


KEYS = st.sampled_from(["video", "image", "size", "vision_config", "args", *OMNI, "min_pixels", "longest_edge"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    preset=st.sampled_from(sorted(set(preset_names()) - {"hf"})), overrides=st.dictionaries(KEYS, JSON, max_size=4)
)
def test_any_overrides_give_settings_or_one_line(preset: str, overrides: dict[str, Any]) -> None:
    try:
        chosen = load_settings(preset, overrides=overrides)
    except NemoGymVideoError:
        return
    rendered: dict[str, Any] = chosen.values()
    assert type(chosen)(**rendered) == chosen
