# SPDX-License-Identifier: Apache-2.0
"""Any transformers image processor in a local folder, asked directly."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import NemoGymVideoError, ProcessorSettingsError, RowError
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import CountRequest, MediaSize, RequestCount

pytest.importorskip("transformers")

QWEN = {
    "image_processor_type": "Qwen2VLImageProcessorPil",
    "size": {"shortest_edge": 3136, "longest_edge": 1003520},
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
}


def write(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "preprocessor_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def ask(folder: Path, *items: MediaSize, **overrides: Any) -> RequestCount:
    settings = load_settings(folder, family="hf", overrides=overrides)
    return count_request(settings, CountRequest(items=items))


@pytest.mark.parametrize(
    "name", ["Qwen2VLImageProcessorPil", "Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"]
)
def test_a_qwen_processor(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, QWEN | {"image_processor_type": name})
    found = ask(folder, MediaSize("image", 640, 360), MediaSize("image", 1280, 720))
    assert [item.run_lengths for item in found.items] == [(299,), (1196,)]
    assert found.items[1].regions[0].grid == (52, 92)
    assert found.items[1].regions[0].processed_size == (1288, 728)
    assert found.adjacent_regions_can_fuse


def test_a_gemma4_processor(tmp_path: Path) -> None:
    folder = write(tmp_path, {"image_processor_type": "Gemma4ImageProcessorPil", "max_soft_tokens": 280})
    assert ask(folder, MediaSize("image", 1920, 1080)).items[0].run_lengths == (264,)


def test_a_processor_of_tiles_needs_the_tokens_of_one(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "image_processor_type": "GotOcr2ImageProcessorPil",
            "crop_to_patches": True,
            "size": {"height": 448, "width": 448},
        },
    )
    with pytest.raises(ProcessorSettingsError, match="image_seq_length"):
        ask(folder, MediaSize("image", 640, 360))
    assert ask(folder, MediaSize("image", 640, 360), image_seq_length=256).items[0].run_lengths == (768,)


@pytest.mark.parametrize(
    ("content", "tokens", "runs"),
    [
        ({"image_processor_type": "Idefics3ImageProcessorPil"}, 169, {(640, 360): 13, (2400, 1080): 9}),
        ({"image_processor_type": "SmolVLMImageProcessorPil", "size": {"longest_edge": 2048},
          "max_image_size": {"longest_edge": 512}}, 64, {(640, 360): 13, (2400, 1080): 9}),
        ({"image_processor_type": "Gemma3ImageProcessorPil"}, 256, {(640, 360): 1, (2400, 1080): 1}),
        ({"image_processor_type": "Gemma3ImageProcessorPil", "do_pan_and_scan": True,
          "pan_and_scan_min_crop_size": 256, "pan_and_scan_max_num_crops": 4,
          "pan_and_scan_min_ratio_to_activate": 1.2}, 256, {(640, 360): 3, (100, 100): 1}),
    ],
)  # fmt: skip
def test_processors_that_make_a_run_of_every_tile(
    tmp_path: Path, content: dict[str, Any], tokens: int, runs: dict[tuple[int, int], int]
) -> None:
    folder = write(tmp_path, content)
    for size, count in runs.items():
        assert (
            ask(folder, MediaSize("image", *size), image_seq_length=tokens).items[0].run_lengths
            == (tokens,) * count
        )


def test_the_folder_may_be_named_as_a_setting(tmp_path: Path) -> None:
    folder = write(tmp_path, QWEN)
    assert load_settings("hf", overrides={"path": str(folder)}) == load_settings(folder, family="hf")


def test_the_fingerprint_is_the_processors_and_not_the_folders(tmp_path: Path) -> None:
    folders = []
    for name, content in (("one", QWEN), ("two", QWEN), ("three", QWEN | {"patch_size": 16})):
        (tmp_path / name).mkdir()
        folders.append(load_settings(write(tmp_path / name, content), family="hf").fingerprint)
    assert folders[0] == folders[1] != folders[2]


def test_a_changed_folder_is_asked_anew(tmp_path: Path) -> None:
    assert ask(write(tmp_path, QWEN), MediaSize("image", 1280, 720)).total == 1196
    small = QWEN | {"size": {"shortest_edge": 3136, "longest_edge": 200704}}
    assert ask(write(tmp_path, small), MediaSize("image", 1280, 720)).total < 300


def test_videos_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="item 1: family 'hf' counts images only"):
        ask(write(tmp_path, QWEN), MediaSize("image", 64, 64), MediaSize("video", 64, 64, 2))


def test_an_image_that_would_have_to_be_made_of_gigabytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="too large"):
        ask(write(tmp_path, QWEN), MediaSize("image", 100_000, 100_000))


def test_what_the_processor_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="refuses the image"):
        ask(write(tmp_path, QWEN), MediaSize("image", 8000, 8))


@pytest.mark.parametrize(
    "content",
    [
        {"image_processor_type": "NoSuchProcessor"},
        {},
        {"image_processor_type": "EvilProcessor", "auto_map": {"AutoImageProcessor": "evil.EvilProcessor"}},
        {"image_processor_type": 3},
        {"image_processor_type": "Qwen2VLImageProcessorPil", "patch_size": "x"},
        {"image_processor_type": "CLIPImageProcessorPil"},
        {"image_processor_type": "PixtralImageProcessorPil"},
        {"image_processor_type": "LlavaOnevisionImageProcessorPil"},
    ],
)
def test_a_folder_that_no_count_comes_from_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass EvilProcessor: pass\n", encoding="utf-8")
    with pytest.raises(NemoGymVideoError) as caught:
        ask(write(tmp_path, content), MediaSize("image", 64, 64))
    assert "\n" not in str(caught.value)
    assert not marker.exists()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["Qwen2VLImageProcessorPil", "Qwen2VLImageProcessorFast", "NoSuchProcessor"])
def test_a_folder_is_asked_without_a_look_at_any_hub(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, QWEN | {"image_processor_type": name, "_name_or_path": "Qwen/Qwen2-VL-2B-Instruct"})
    if name == "NoSuchProcessor":
        with pytest.raises(ProcessorSettingsError, match="cannot load"):
            ask(folder, MediaSize("image", 64, 64))
    else:
        assert ask(folder, MediaSize("image", 640, 360)).total == 299


@pytest.mark.usefixtures("no_network")
def test_a_missing_folder_is_refused_without_a_look_at_any_hub(tmp_path: Path) -> None:
    for name in ("Qwen/Qwen2-VL-2B-Instruct", str(tmp_path)):
        with pytest.raises(ProcessorSettingsError, match=r"no preprocessor_config\.json"):
            load_settings(name, family="hf")
