# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders as they are published, and what is wrong with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.presets import load_settings, read_settings

Folder = Callable[..., Path]

# Much in a checkpoint's files is none of our business; these keys stand for all of it.
TEXT = {"hidden_size": 2688, "num_hidden_layers": 52, "max_position_embeddings": 262144, "vocab_size": 131072}
PICTURE = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
    "resample": 3,
    "min_pixels": None,
    "max_pixels": None,
}
OMNI: dict[str, Any] = {
    "architectures": ["NemotronH_Nano_Omni_Reasoning_V3"],
    "model_type": "NemotronH_Nano_Omni_Reasoning_V3",
    "auto_map": {"AutoConfig": "configuration.Config"},
    "patch_size": 16,
    "downsample_ratio": 0.5,
    "force_image_size": 512,
    "use_thumbnail": True,
    "max_num_tiles": 12,
    "img_context_token_id": 18,
    "video_context_token_id": 131081,
    "video_pruning_rate": 0.7,
    "text_config": TEXT,
    "vision_config": {
        "args": {"min_num_patches": 1024, "max_num_patches": 13312, "model": "vit_huge", "cpe_max_size": 2048},
        "video_target_num_patches": 1024,
        "video_maintain_aspect_ratio": True,
        "video_temporal_patch_size": 2,
        "patch_size": 16,
        "hidden_size": 1280,
    },
}
OMNI_IMAGE = {
    "norm_mean": [0.48],
    "norm_std": [0.27],
    "patch_size": 16,
    "downsample_ratio": 0.5,
    "max_model_len": 16384,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "image_token_id": 151655,
    "video_token_id": 151656,
    "text_config": TEXT,
    "vision_config": {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "depth": 27},
}
QWEN3_IMAGE = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
QWEN3_VIDEO = QWEN3_IMAGE | {
    "size": {"longest_edge": 25165824, "shortest_edge": 4096},
    "video_processor_type": "Qwen3VLVideoProcessor",
}
QWEN25 = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 2048,
    "vision_config": {"patch_size": 14, "spatial_patch_size": 14, "spatial_merge_size": 2, "window_size": 112},
}
QWEN25_IMAGE = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
INTERN = {
    "architectures": ["InternVLForConditionalGeneration"],
    "model_type": "internvl",
    "image_token_id": 151667,
    "image_seq_length": 256,
    "downsample_ratio": 0.5,
    "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]},
}
INTERN_IMAGE = PICTURE | {
    "size": {"height": 448, "width": 448},
    "crop_to_patches": False,
    "min_patches": 1,
    "max_patches": 12,
    "image_processor_type": "GotOcr2ImageProcessorFast",
}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Writes a checkpoint folder; each file by its name without ``.json``."""

    def write(**files: Any) -> Path:
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def merged(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return base | changes


def test_nemotron_omni(folder: Folder) -> None:
    loaded = read_settings(folder(config=OMNI, preprocessor_config=OMNI_IMAGE))
    assert loaded.settings.fingerprint == load_settings("nemotron_omni").fingerprint
    assert loaded.settings.media_token_ids == (18,)
    assert loaded.sources["max_num_patches"].endswith("config.json: vision_config.args.max_num_patches")
    assert loaded.notes == ()


def test_a_nemotron_checkpoint_with_absent_video_keys_has_square_single_frames(folder: Folder) -> None:
    vision = {"args": {"min_num_patches": 1024, "max_num_patches": 13312}}
    values = load_settings(folder(config=merged(OMNI, vision_config=vision))).values()
    assert values["video_temporal_patch_size"] == 1
    assert values["video_target_num_patches"] is None


def test_nemotron_without_bounds_is_the_tiled_family(folder: Folder) -> None:
    config = merged(OMNI, architectures=["NemotronH_Nano_VL_V2"], model_type="x", vision_config={"args": {}})
    assert load_settings(folder(config=config)).fingerprint == load_settings("nemotron_nano_vl").fingerprint


def test_nemotron_in_transformers_own_form(folder: Folder) -> None:
    image = {"image_processor_type": "NemotronH_Omni_Reasoning_V3ImageProcessor", "image_mean": [0.48]}
    path = folder(config={"model_type": "nemotron_h_omni"}, preprocessor_config=image)
    assert load_settings(path).fingerprint == load_settings("nemotron_omni").fingerprint
    video = {"video_processor_type": "NemotronH_Omni_Reasoning_V3VideoProcessor", "temporal_patch_size": 4}
    assert load_settings(folder(video_preprocessor_config=video)).temporal_patch_size == 4


def test_qwen3(folder: Folder) -> None:
    path = folder(config=QWEN3, preprocessor_config=QWEN3_IMAGE, video_preprocessor_config=QWEN3_VIDEO)
    loaded = read_settings(path)
    assert loaded.settings.fingerprint == load_settings("qwen3_vl").fingerprint
    assert loaded.notes == ()


def test_qwen25_reads_its_only_processor_file_for_videos_too(folder: Folder) -> None:
    path = folder(config=QWEN25, preprocessor_config=QWEN25_IMAGE)
    assert load_settings(path).fingerprint == load_settings("qwen2_5_vl").fingerprint


def test_a_video_file_of_its_own_ends_that(folder: Folder) -> None:
    path = folder(config=QWEN25, preprocessor_config=QWEN25_IMAGE, video_preprocessor_config={"patch_size": 14})
    values = load_settings(path).values()
    assert values["max_pixels"] == 12845056
    assert values["video_max_pixels"] == 602112


def test_one_processor_file_for_all(folder: Folder) -> None:
    processor = {
        "processor_class": "Qwen3VLProcessor",
        "image_processor": QWEN3_IMAGE,
        "video_processor": QWEN3_VIDEO,
    }
    assert load_settings(folder(processor_config=processor)).fingerprint == load_settings("qwen3_vl").fingerprint


def test_min_pixels_wins_over_the_size_beside_it(folder: Folder) -> None:
    image = merged(QWEN25_IMAGE, size={"shortest_edge": 1, "longest_edge": 2})
    assert load_settings(folder(config=QWEN25, preprocessor_config=image)).values()["max_pixels"] == 12845056


def test_internvl(folder: Folder) -> None:
    path = folder(config=INTERN, preprocessor_config=INTERN_IMAGE)
    loaded = read_settings(path)
    assert loaded.settings.fingerprint == load_settings("internvl").fingerprint
    assert loaded.settings.media_token_ids == (151667,)


def test_internvl_as_first_published(folder: Folder) -> None:
    config = {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "force_image_size": 448,
        "max_dynamic_patch": 6,
        "min_dynamic_patch": 1,
        "downsample_ratio": 0.5,
        "vision_config": {"image_size": 448, "patch_size": 14},
    }
    image = {
        "crop_size": 448,
        "do_center_crop": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 448,
    }
    values = load_settings(folder(config=config, preprocessor_config=image)).values()
    assert values["max_patches"] == 6
    assert values["tile_width"] == 448


def test_gemma4(folder: Folder) -> None:
    processor = {
        "processor_class": "Gemma4Processor",
        "image_seq_length": 280,
        "image_processor": {
            "image_processor_type": "Gemma4ImageProcessor",
            "max_soft_tokens": 560,
            "patch_size": 16,
        },
        "video_processor": {
            "video_processor_type": "Gemma4VideoProcessor",
            "max_soft_tokens": 70,
            "num_frames": 32,
        },
    }
    config = {"model_type": "gemma4", "image_token_id": 258880, "vision_soft_tokens_per_image": 280}
    values = load_settings(folder(config=config, processor_config=processor)).values()
    assert values["max_soft_tokens"] == 560
    assert values["video_max_soft_tokens"] == 70


def test_overrides_lie_over_a_folder_and_leave_its_siblings(folder: Folder) -> None:
    path = folder(config=OMNI)
    plain = load_settings(path).values()
    changed = load_settings(path, overrides={"video": {"maintain_aspect_ratio": False}}).values()
    assert changed == plain | {"video_maintain_aspect_ratio": False}


# Mistakes


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"config": merged(OMNI, vision_config=OMNI["vision_config"] | {"video_target_num_patch": 9})},
            ("config.json", "video_target_num_patch'", "'vision_config.video_target_num_patches'"),
        ),
        (
            {"config": merged(OMNI, vision_config={"args": {"min_num_patches": 4, "max_num_patchs": 9}})},
            ("config.json", "'vision_config.args.max_num_patches'"),
        ),
        ({"config": merged(OMNI, downsample_ration=0.5)}, ("'downsample_ratio'",)),
        ({"config": OMNI, "preprocessor_config": {"patchsize": 16}}, ("preprocessor_config.json", "'patch_size'")),
        (
            {"config": QWEN3, "video_preprocessor_config": {"size": {"longest_edgee": 9}}},
            ("video_preprocessor_config.json", "'size.longest_edge'"),
        ),
        (
            {"config": QWEN3, "processor_config": {"video_processor": {"merge_sizes": 2}}},
            ("processor_config.json: video_processor", "'merge_size'"),
        ),
        (
            {"config": merged(OMNI, patch_size="16")},
            ("config.json", "patch_size", "an integer"),
        ),
        (
            {"config": merged(OMNI, vision_config={"args": {"min_num_patches": True}})},
            ("vision_config.args.min_num_patches", "True"),
        ),
        ({"config": QWEN3, "preprocessor_config": merged(QWEN3_IMAGE, do_resize=False)}, ("do_resize", "off")),
        ({"config": QWEN3, "preprocessor_config": "{"}, ("preprocessor_config.json", "unreadable")),
        ({"config": QWEN3, "preprocessor_config": "[]"}, ("preprocessor_config.json", "no JSON object")),
        ({"config": QWEN3, "preprocessor_config": '{"patch_size": NaN}'}, ("patch_size", "nan")),
        ({"config": "[" * 100_000}, ("config.json", "unreadable")),
        ({"config": {"model_type": "llama"}}, ("no known family", "llama", "'hf'")),
        ({"config": {"model_type": "qwen3_5", "architectures": None}, "preprocessor_config": QWEN25_IMAGE | {
            "processor_class": "Other"}}, ("no known family",)),
        ({"config": {"model_type": "gemma4_unified"}}, ("no known family",)),
        ({"other": {}}, ("no processor files", "config.json")),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_file(folder: Folder, files: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ProcessorSettingsError) as caught:
        load_settings(folder(**files))
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_files_that_disagree_are_refused_until_an_override_settles_it(folder: Folder) -> None:
    image = OMNI_IMAGE | {"min_num_patches": 256}
    path = folder(config=OMNI, preprocessor_config=image)
    with pytest.raises(ProcessorSettingsError, match=r"disagree on 'min_num_patches'.*1024.*256"):
        load_settings(path)
    assert load_settings(path, overrides={"min_num_patches": 256}).values()["min_num_patches"] == 256


def test_one_is_not_true_when_files_are_compared(folder: Folder) -> None:
    config = merged(OMNI, vision_config=OMNI["vision_config"] | {"video_temporal_patch_size": 1})
    with pytest.raises(ProcessorSettingsError, match="'video_temporal_patch_size' does not fit; got True"):
        load_settings(folder(config=config, preprocessor_config={"video_temporal_patch_size": True}))


def test_equal_numbers_agree_however_they_are_written(folder: Folder) -> None:
    path = folder(config=merged(OMNI, downsample_ratio=1), preprocessor_config={"downsample_ratio": 1.0})
    assert load_settings(path).values()["downsample_ratio"] == 1.0


def test_an_unknown_key_of_a_processor_file_is_noted_and_one_of_the_model_is_not(folder: Folder) -> None:
    config = merged(OMNI, something_new=1)
    loaded = read_settings(folder(config=config, preprocessor_config=OMNI_IMAGE | {"something_else": 2}))
    (note,) = loaded.notes
    assert "preprocessor_config.json" in note
    assert "something_else" in note


def test_a_leftover_of_another_family_is_no_mistake(folder: Folder) -> None:
    leftovers = OMNI_IMAGE | {"max_num_tiles": 12, "use_thumbnail": True, "max_patches": 12}
    assert read_settings(folder(config=OMNI, preprocessor_config=leftovers)).notes == ()


def test_a_folder_can_be_read_as_a_named_family(folder: Folder) -> None:
    image = {name: value for name, value in QWEN3_IMAGE.items() if name != "processor_class"}
    path = folder(config={"model_type": "qwen3_5"}, preprocessor_config=image)
    assert load_settings(path, family="qwen3_vl").family == "qwen3_vl"
    with pytest.raises(ProcessorSettingsError, match="no known family"):
        load_settings(path)


def test_a_huge_file_is_refused(folder: Folder) -> None:
    path = folder(config='{"x": "' + "a" * (17 << 20) + '"}')
    with pytest.raises(ProcessorSettingsError, match="too large"):
        load_settings(path)
