# SPDX-License-Identifier: Apache-2.0
"""``gym-video count`` and ``gym-video settings`` as they are run."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app
from nemo_gym_video.commands.count import answer
from nemo_gym_video.errors import NemoGymVideoError, Where
from nemo_gym_video.processors.presets import preset_names


def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(build_app(arguments[0]), list(arguments), input=stdin, env={"COLUMNS": "80"})
    if isinstance(result.exception, NemoGymVideoError):
        return 1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def count(*requests: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    code, out = run("count", "--jsonl", stdin="".join(json.dumps(request) + "\n" for request in requests))
    return code, [json.loads(line) for line in out.splitlines()]


VIDEO = {"kind": "video", "size": [1920, 1080], "frames": 64}


def test_a_request_line_gets_an_answer_line() -> None:
    request = {
        "family": "nemotron_omni",
        "items": [{"kind": "image", "size": [2400, 1080]}, {"kind": "video", "size": [1920, 1080], "frames": 3}],
        "settings": {},
        "max_model_len": 32768,
        "text_tokens": 0,
    }
    code, (answer,) = count(request)
    assert code == 0
    assert answer.pop("fingerprint").startswith("sha256:")
    assert answer == {
        "items": [
            {"run_lengths": [2550], "grid": [68, 150], "processed_size": [2400, 1088], "total": 2550},
            {"run_lengths": [252, 252], "grid": [24, 42], "processed_size": [672, 384], "total": 504},
        ],
        "total": 3054,
    }


@pytest.mark.parametrize(
    ("given_settings", "runs"),
    [
        (None, [252] * 32),
        ({"video_maintain_aspect_ratio": False}, [256] * 32),
        ({"video_temporal_patch_size": 1}, [252] * 64),
        ({"video": {"target_num_patches": 256}}, [60] * 32),
    ],
)
def test_flat_settings_are_the_checkpoints_names(given_settings: dict[str, Any] | None, runs: list[int]) -> None:
    code, (answer,) = count({"family": "nemotron_omni", "items": [VIDEO], "settings": given_settings})
    assert code == 0
    assert answer["items"][0]["run_lengths"] == runs


def test_pixel_bounds_of_a_qwen_request() -> None:
    item = VIDEO | {"frames": 16}
    bounds = {"min_pixels": 100352, "max_pixels": 602112}
    _, answers = count(
        {"family": "qwen2_5_vl", "items": [item], "settings": bounds},
        {"family": "qwen3_vl", "items": [item], "settings": {"min_pixels": 131072, "max_pixels": 786432}},
    )
    assert [answer["total"] for answer in answers] == [5760, 360]


def test_must_hold_numbers() -> None:
    image, screen = {"kind": "image", "size": [2400, 1080]}, {"kind": "image", "size": [1920, 1080]}
    _, (tall, screens) = count(
        {"family": "nemotron_omni", "items": [image] * 16, "max_model_len": 32768},
        {"family": "nemotron_omni", "items": [screen] * 9, "max_model_len": 16384},
    )
    assert [item["total"] for item in tall["items"]] == [2010] * 16
    assert [item["total"] for item in screens["items"]] == [1792] * 9


def test_an_empty_call_costs_nothing() -> None:
    code, (answer,) = count({"family": "qwen3_vl", "items": []})
    assert code == 0
    assert answer["total"] == 0


def test_what_is_not_predictable_is_in_the_answer() -> None:
    request = {"family": "nemotron_omni", "items": [VIDEO], "pruning_rate": 0.7}
    _, (pruned, cached) = count(
        request, {"family": "nemotron_omni", "items": [{"kind": "image", "size": [9, 9]}], "processor_cache": True}
    )
    assert "2419 of 8064" in pruned["items"][0]["notes"][0]
    assert "earlier call" in cached["items"][0]["notes"][0]


@pytest.mark.parametrize(
    ("request_line", "words"),
    [
        ({"items": []}, ("family",)),
        ({"family": 3, "items": []}, ("family",)),
        ({"family": "nemotron_omnii", "items": []}, ("did you mean 'nemotron_omni'",)),
        ({"family": "nemotron_omni"}, ("items",)),
        ({"family": "nemotron_omni", "items": {}}, ("items",)),
        ({"family": "nemotron_omni", "items": [3]}, ("item 0", "no object")),
        ({"family": "nemotron_omni", "items": [{"kind": "image"}]}, ("item 0", "size")),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": [1]}]}, ("size",)),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": "1x1"}]}, ("size",)),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": [0, 1]}]}, ("item 0", "width")),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": [1.5, 1]}]}, ("width",)),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": ["1", 1]}]}, ("width",)),
        ({"family": "nemotron_omni", "items": [{"kind": "pdf", "size": [1, 1]}]}, ("pdf",)),
        ({"family": "nemotron_omni", "items": [{"size": [1, 1]}]}, ("kind",)),
        ({"family": "nemotron_omni", "items": [{"kind": "video", "size": [1, 1]}]}, ("frames",)),
        ({"family": "nemotron_omni", "items": [{"kind": "video", "size": [1, 1], "frames": 0}]}, ("frames",)),
        ({"family": "nemotron_omni", "items": [{"kind": "image", "size": [1, 1], "dpi": 3}]}, ("'dpi'",)),
        ({"family": "nemotron_omni", "items": [], "max_len": 3}, ("'max_len'",)),
        ({"family": "nemotron_omni", "items": [], "max_model_len": "3"}, ("max_model_len",)),
        ({"family": "nemotron_omni", "items": [], "text_tokens": True}, ("text_tokens",)),
        ({"family": "nemotron_omni", "items": [], "processor_cache": 1}, ("processor_cache",)),
        ({"family": "nemotron_omni", "items": [], "pruning_rate": 2}, ("pruning_rate",)),
        ({"family": "nemotron_omni", "items": [], "settings": []}, ("no object",)),
        ({"family": "nemotron_omni", "items": [], "settings": {"min_num_patchs": 1}}, ("'min_num_patches'",)),
        ({"family": "nemotron_omni", "items": [], "settings": {"patch_size": 0}}, ("patch_size",)),
        ({"family": "qwen3_vl", "items": [VIDEO | {"frames": 1}]}, ("item 0", "too few frames")),
        ({"family": "qwen3_vl", "items": [{"kind": "image", "size": [9999, 9]}]}, ("item 0", "200")),
    ],
)
def test_a_bad_line_is_an_error_in_its_place_and_the_rest_goes_on(
    request_line: dict[str, Any], words: tuple[str, ...]
) -> None:
    good = {"family": "nemotron_omni", "items": [VIDEO]}
    code, answers = count(good, request_line, good)
    assert code == 1
    assert [answer.get("total") for answer in answers] == [8064, None, 8064]
    assert set(answers[1]) == {"error", "code"}
    assert all(word in answers[1]["error"] for word in words), answers[1]


def test_lines_that_are_no_json() -> None:
    code, out = run("count", "--jsonl", stdin='{"family":\n\n[]\n{"family": "qwen2_vl", "items": []}\n')
    assert code == 1
    assert ["error" in json.loads(line) for line in out.splitlines()] == [True, True, False]


def test_requests_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps({"family": "gemma4", "items": [VIDEO]}) + "\n", encoding="utf-8")
    code, out = run("count", "--jsonl", str(path))
    assert code == 0
    assert json.loads(out)["total"] == 64 * 66


def test_a_table_for_people_fits_80_columns() -> None:
    code, out = run(
        "count",
        "--image",
        "1920x1080",
        "--image",
        "2400x1080:2",
        "--video",
        "64@1920x1080",
        "--max-model-len",
        "16384",
    )
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "32 x 252" in out
    assert "8064" in out
    assert "total: 15204 tokens" in out


def test_settings_for_people() -> None:
    _, out = run("count", "--video", "64@1920x1080", "--settings", '{"video": {"maintain_aspect_ratio": false}}')
    assert "8192" in out


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--image", "x"),
        ("--image", "0x4"),
        ("--image", "1920*1080"),
        ("--video", "1920x1080"),
        ("--video", "0@64x64"),
        ("--image", "64x64", "--settings", "{"),
        ("--image", "64x64", "--family", "nope"),
        ("--image", "64x64", "--max-model-len", "0"),
    ],
)
def test_a_bad_command_line_is_one_line(arguments: tuple[str, ...]) -> None:
    code, message = run("count", *arguments)
    assert code == 1
    assert message
    assert "\n" not in message


def test_settings_are_shown_with_their_sources() -> None:
    code, out = run("settings", "show", "nemotron_omni", "--overrides", '{"video": {"target_num_patches": 256}}')
    assert code == 0
    assert "sha256:" in out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "256" in rows["video_target_num_patches"]
    assert "overrides" in rows["video_target_num_patches"]
    assert "13312" in rows["max_num_patches"]
    assert "--max-model-len 16384" in out


def test_settings_as_json() -> None:
    code, out = run("settings", "show", "qwen3_vl", "--json")
    body = json.loads(out)
    assert code == 0
    assert body["family"] == "qwen3_vl"
    assert body["settings"]["video_max_pixels"] == 25165824
    assert body["trainer_settings"]["fingerprint"] == body["fingerprint"]


def test_a_checkpoint_folder_is_shown(tmp_path: Path) -> None:
    vision = {"args": {"min_num_patches": 1024, "max_num_patches": 13312}, "video_target_num_patches": 1024}
    config = {"model_type": "NemotronH_Nano_Omni_Reasoning_V3", "vision_config": vision}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, out = run("settings", "show", str(tmp_path))
    assert code == 0
    assert "config.json: vision_config.args.max_num_patches".replace(" ", "") in "".join(out.split())
    (tmp_path / "config.json").write_text(json.dumps(config | {"downsample_ratioo": 1}), encoding="utf-8")
    code, message = run("settings", "show", str(tmp_path))
    assert code == 1
    assert "downsample_ratioo" in message
    assert "config.json" in message


def test_settings_diff_says_the_effect(tmp_path: Path) -> None:
    off = '{"video": {"maintain_aspect_ratio": false}}'
    code, out = run("settings", "diff", "nemotron_omni", "nemotron_omni", "--right-overrides", off)
    assert code == 0
    assert out.count("\n") == 1
    assert "video_maintain_aspect_ratio" in out
    assert "8064 -> 8192" in out
    _, out = run("settings", "diff", "nemotron_omni", "nemotron_omni")
    assert out.startswith("equal settings of nemotron_omni")


def test_settings_diff_as_json() -> None:
    _, out = run("settings", "diff", "qwen2_vl", "qwen2_vl_class_default", "--json")
    assert {json.loads(line)["name"] for line in out.splitlines()} == {
        "max_pixels",
        "video_min_pixels",
        "video_max_pixels",
    }


@pytest.mark.parametrize(
    "arguments", [("show", "nope"), ("diff", "nope", "qwen3_vl"), ("show", "gemma4", "--overrides", "[")]
)
def test_bad_settings_are_one_line(arguments: tuple[str, ...]) -> None:
    code, message = run("settings", *arguments)
    assert code == 1
    assert "\n" not in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
SIDES = st.integers(-1, 3000) | st.integers(0, 2**33)
ITEMS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["image", "video"]), "size": st.lists(SIDES, min_size=2, max_size=2) | JSON},
    optional={"frames": st.integers(-1, 300) | JSON},
)
REQUESTS = st.fixed_dictionaries(
    {"family": st.sampled_from(sorted(set(preset_names()) - {"hf"})), "items": st.lists(ITEMS, max_size=4) | JSON},
    optional={
        "settings": JSON,
        "max_model_len": st.integers(1, 2**17) | JSON,
        "text_tokens": st.integers(0, 2**17) | JSON,
        "pruning_rate": st.floats(0, 1) | JSON,
        "processor_cache": st.booleans() | JSON,
        "surplus": JSON,
    },
)


@settings(max_examples=400, deadline=None)
@given(request_line=REQUESTS)
def test_any_request_gets_an_answer_or_one_line(request_line: dict[str, Any]) -> None:
    try:
        found = answer(request_line, Where(line=1))
    except NemoGymVideoError:
        return
    assert found["total"] == sum(sum(item["run_lengths"]) for item in found["items"])
    assert all(length > 0 for item in found["items"] for length in item["run_lengths"])
    json.dumps(found, allow_nan=False)
