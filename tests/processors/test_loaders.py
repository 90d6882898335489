# SPDX-License-Identifier: Apache-2.0
"""The engine's loaders against what vLLM 0.32's own loaders did with 24 real clips, and what is refused."""

import ast
import importlib.util
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.errors import MediaDecodeError, ProcessorSettingsError, Where
from nemo_gym_video.processors.loaders.frame_loading import load_frames
from nemo_gym_video.processors.loaders.loader_choice import (
    LOADER_OF_PROCESSOR,
    PROCESSOR_OF_MODEL_TYPE,
    engine_flags,
    loader_for,
    settings_from_flags,
    video_processor_of,
)
from nemo_gym_video.processors.loaders.loader_requests import answer_loader
from nemo_gym_video.processors.loaders.loader_settings import LOADER_ARGUMENTS, LoaderSettings
from nemo_gym_video.processors.loaders.second_stage import SecondSampling, processor_frames
from nemo_gym_video.processors.sampling import sample_frames

FILE = json.loads((Path(__file__).parents[1] / "fixtures/vectors/loaders.json").read_text())
VECTORS = FILE["vectors"]
TAKEN = [vector for vector in VECTORS if "error" not in vector]
FAILED = [vector for vector in VECTORS if "error" in vector]


def _clip(vector: dict[str, Any]) -> tuple[int, float, float]:
    return vector["total_num_frames"], vector["fps"], vector["duration"]


def _name(vector: dict[str, Any]) -> str:
    return f"{vector['loader']}-{json.dumps(vector['arguments'])}-{vector['total_num_frames']}@{vector['fps']:.2f}"


def test_the_vectors_are_whole() -> None:
    assert (len(VECTORS), len(TAKEN), len(FAILED)) == (552, 510, 42)
    assert {vector["loader"] for vector in VECTORS} == set(LOADER_ARGUMENTS)
    assert LoaderSettings.engine.split(",")[0] in FILE["engine"]


@pytest.mark.parametrize("vector", TAKEN, ids=_name)
def test_takes_what_the_engine_took(vector: dict[str, Any]) -> None:
    loader = LoaderSettings(name=vector["loader"], **vector["arguments"])
    loaded = load_frames(loader, *_clip(vector))
    assert list(loaded.indices) == vector["frames_indices"]
    assert len(loaded.indices) == vector["frames"]
    assert loaded.do_sample_frames is vector["do_sample_frames"]
    # The decoder's duration is its frames over its rate.
    assert load_frames(loader, vector["total_num_frames"], vector["fps"]) == loaded


@pytest.mark.parametrize("vector", FAILED, ids=_name)
def test_refuses_what_the_engine_failed_on(vector: dict[str, Any]) -> None:
    error = ProcessorSettingsError if vector["loader"] == "openpangu" else MediaDecodeError
    with pytest.raises(error, match=rf"loader {vector['loader']} fails"):
        load_frames(LoaderSettings(name=vector["loader"], **vector["arguments"]), *_clip(vector))


def test_qwen2_vl_steps_in_float32() -> None:
    # 7 x (230 / 14) is 114.99999999999999 in float64, which would be cut to 114; stored as float32 it is 115.
    loaded = load_frames(LoaderSettings(name="qwen2_vl"), 230, 30.0)
    assert int(7 * (230 / 14)) == 114
    assert loaded.indices[7] == 115


def test_qwen2_vl_pulls_a_step_past_the_end_back() -> None:
    # 451 / (451 / 54) is a little over 54, so there is a 55th step, to 451: vLLM makes it the last frame.
    loaded = load_frames(LoaderSettings(name="qwen2_vl", max_frames=54, fps=30), 451, 30.0)
    assert len(loaded.indices) == 55
    assert loaded.indices[-3:] == (434, 442, 450)
    assert len(load_frames(LoaderSettings(name="qwen2_vl", max_frames=56, fps=30), 451, 30.0).indices) == 56


def test_where_a_rule_turns() -> None:
    # 300 s at 2 a second are 600 frames: a longer clip that has just these is taken whole.
    assert load_frames(LoaderSettings(name="opencv_dynamic"), 600, 1.0).do_sample_frames
    assert not load_frames(LoaderSettings(name="opencv_dynamic"), 601, 1.0).do_sample_frames
    # 12.4 s at 2 a second are 25 frames: up to a request of these the rate decides, and the last is at 12 s.
    by_rate = load_frames(LoaderSettings(name="openpangu", num_frames=32), 63, 5.0)
    assert load_frames(LoaderSettings(name="openpangu", num_frames=25), 63, 5.0) == by_rate
    assert load_frames(LoaderSettings(name="openpangu", num_frames=24), 63, 5.0).indices[-1] == 62


@pytest.mark.parametrize("vector", TAKEN[::7], ids=_name)
def test_the_printed_flags_say_the_same(vector: dict[str, Any]) -> None:
    loader = LoaderSettings(name=vector["loader"], **vector["arguments"])
    again = settings_from_flags(engine_flags(loader), video_processor="Glm4vVideoProcessor")
    assert again.name == loader.name
    assert list(load_frames(again, *_clip(vector)).indices) == vector["frames_indices"]


def test_flags_name_the_loader_and_the_count_that_the_server_would_fill_in() -> None:
    assert json.loads(engine_flags(LoaderSettings(name="nemotron_vl"))) == {
        "video": {"video_backend": "nemotron_vl", "num_frames": -1}
    }
    assert json.loads(engine_flags(LoaderSettings(name="qwen3_vl", fps=1, max_frames=16))) == {
        "video": {"video_backend": "qwen3_vl", "fps": 1, "max_frames": 16}
    }
    assert settings_from_flags().num_frames == 32
    assert len(load_frames(settings_from_flags(), 300, 30.0).indices) == 32
    assert len(load_frames(LoaderSettings(name="opencv"), 300, 30.0).indices) == 300


@pytest.mark.parametrize(
    ("processor", "version", "loader"),
    [
        ("Qwen2VLVideoProcessor", None, "qwen2_vl"),
        ("Qwen3VLVideoProcessor", "0.32.0", "qwen3_vl"),
        ("Qwen3VLVideoProcessor", "0.31.0rc1", "qwen3_vl"),
        ("Qwen3VLVideoProcessor", "0.29.0", "opencv"),
        ("Glm4vVideoProcessor", "1.0.0", "opencv_dynamic"),
        ("Glm46VVideoProcessor", None, "glm46v"),
        ("Molmo2VideoProcessor", None, "molmo2"),
        ("InternVLVideoProcessor", None, "opencv"),
        (None, None, "opencv"),
    ],
)
def test_choice_of_the_loader(processor: str | None, version: str | None, loader: str) -> None:
    assert loader_for(processor, engine_version=version) == loader
    assert settings_from_flags(video_processor=processor, engine_version=version).name == loader


def test_a_class_is_read_from_the_file_or_implied_by_the_model_type() -> None:
    assert video_processor_of("Qwen3VLVideoProcessor", model_type="glm4v") == "Qwen3VLVideoProcessor"
    assert video_processor_of(None, model_type="qwen2_5_vl") == "Qwen2VLVideoProcessor"
    assert video_processor_of(None, model_type="llama") is None
    assert set(LOADER_OF_PROCESSOR.values()) <= set(LOADER_ARGUMENTS)


def _transformers(path: str) -> ast.Module:
    # Read as text: the modules themselves want torchvision.
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    return ast.parse((Path(spec.origin).parent / path).read_text(encoding="utf-8"))


def test_model_types_are_those_of_transformers() -> None:
    known: dict[str, str] = {}
    for path in ("models/auto/auto_mappings.py", "models/auto/video_processing_auto.py"):
        for node in ast.walk(_transformers(path)):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.elts[1], ast.Dict):
                name, classes = ast.literal_eval(node)
                if str(classes.get("torchvision", "")).endswith("VideoProcessor"):
                    known[name] = classes["torchvision"]
    assert {name: known.get(name) for name in PROCESSOR_OF_MODEL_TYPE} == dict(PROCESSOR_OF_MODEL_TYPE)


def test_a_loader_whose_rule_is_unknown_is_refused_unless_a_flag_names_another() -> None:
    with pytest.raises(ProcessorSettingsError, match="GlmgaVideoProcessor"):
        loader_for("GlmgaVideoProcessor")
    flags = '{"video": {"video_backend": "opencv", "num_frames": 8}}'
    assert settings_from_flags(flags, video_processor="GlmgaVideoProcessor").num_frames == 8


@pytest.mark.parametrize(("total", "reach"), [(9, 4), (30, 4), (32, 4), (40, 32)])
def test_qwen3_vl_samples_again_what_was_taken_whole(total: int, reach: int) -> None:
    # Measured on a live engine started with the uniform loader and num_frames 32.
    loaded = load_frames(LoaderSettings(name="opencv", num_frames=32), total, 30.0)
    frames = processor_frames(SecondSampling(video_processor="Qwen3VLVideoProcessor"), loaded)
    assert len(frames) == reach
    assert frames[0] == 0
    assert frames[-1] == total - 1
    assert processor_frames(SecondSampling(video_processor="Qwen2VLVideoProcessor"), loaded) == loaded.indices


@pytest.mark.parametrize("arguments", [{}, {"fps": 1.0}, {"fps": 7}, {"num_frames": 5}])
def test_second_sampling_is_that_of_transformers(arguments: dict[str, Any]) -> None:
    tree = _transformers("models/qwen3_vl/video_processing_qwen3_vl.py")
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "sample_frames"]
    for argument in found[0].args.args:
        argument.annotation = None
    scope: dict[str, Any] = {"np": np}
    exec(compile(ast.Module(body=[*found], type_ignores=[]), "sample_frames", "exec"), scope)
    processor = SimpleNamespace(fps=2, num_frames=None, min_frames=4, max_frames=768)
    sampling = SecondSampling(video_processor="Qwen3VLVideoProcessor", **arguments)
    for total, fps in itertools.product((5, 9, 33, 61, 450, 1494, 5000), (1.0, 5.0, 23.976023976023978, 59.94)):
        theirs = scope["sample_frames"](processor, SimpleNamespace(total_num_frames=total, fps=fps), **arguments)
        ours = processor_frames(sampling, load_frames(LoaderSettings(name="opencv"), total, fps))
        assert list(ours) == theirs.tolist()


def test_second_sampling_with_its_own_arguments() -> None:
    loaded = load_frames(LoaderSettings(name="opencv"), 300, 30.0)
    assert loaded.do_sample_frames
    name = "Qwen3VLVideoProcessor"
    assert len(processor_frames(SecondSampling(video_processor=name), loaded)) == 20
    assert len(processor_frames(SecondSampling(video_processor=name, fps=1), loaded)) == 10
    assert len(processor_frames(SecondSampling(video_processor=name, num_frames=7), loaded)) == 7
    assert len(processor_frames(SecondSampling(video_processor=name, max_frames=6), loaded)) == 6
    assert len(processor_frames(SecondSampling(video_processor=name, num_frames=301), loaded)) == 301


def test_second_sampling_refuses() -> None:
    name = "Qwen3VLVideoProcessor"
    with pytest.raises(ProcessorSettingsError, match="not both"):
        SecondSampling(video_processor=name, num_frames=7, fps=1)
    with pytest.raises(ProcessorSettingsError, match="fps of the video processor"):
        SecondSampling(video_processor=name, fps=float("inf"))
    unknown_rate = load_frames(LoaderSettings(name="opencv"), 9, 0)
    assert unknown_rate.timestamps is None
    with pytest.raises(MediaDecodeError, match="unknown frame rate"):
        processor_frames(SecondSampling(video_processor=name), unknown_rate)


def test_a_marked_clip_of_a_family_whose_second_sampling_is_unknown_is_refused() -> None:
    sampling = SecondSampling(video_processor="Molmo2VideoProcessor")
    with pytest.raises(ProcessorSettingsError, match="took all 63 frames"):
        processor_frames(sampling, load_frames(LoaderSettings(name="molmo2"), 63, 5.0))
    part = load_frames(LoaderSettings(name="opencv", num_frames=8), 63, 5.0)
    assert processor_frames(sampling, part) == part.indices


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"name": "qwen3vl"}, "did you mean 'qwen3_vl'"),
        ({"name": None}, "unknown video loader"),
        ({"name": "qwen3_vl", "num_frames": 16, "fps": 1}, "not both"),
        ({"name": "qwen2_vl", "num_frames": 16, "fps": 1}, "not both"),
        ({"name": "qwen3_vl", "fps": -1}, "fps of the loader"),
        ({"name": "qwen3_vl", "fps": float("nan")}, "fps of the loader"),
        ({"name": "opencv", "fps": 0}, "fps of the loader"),
        ({"name": "opencv", "num_frames": 0}, "num_frames of the loader"),
        ({"name": "opencv", "num_frames": -2}, "num_frames of the loader"),
        ({"name": "opencv", "num_frames": True}, "num_frames of the loader"),
        ({"name": "opencv", "num_frames": 8.0}, "num_frames of the loader"),
        ({"name": "opencv", "num_frames": "8"}, "num_frames of the loader"),
        ({"name": "qwen2_vl", "temporal_patch_size": 0}, "temporal_patch_size"),
        ({"name": "qwen2_vl", "min_frames": 9, "max_frames": 8}, "min_frames is above max_frames"),
        ({"name": "opencv_dynamic", "max_duration": 0}, "max_duration"),
        ({"name": "openpangu", "num_frames": -1}, "fails without num_frames"),
        ({"name": "opencv", "frame_recovery": 1}, "frame_recovery"),
    ],
)
def test_refused_settings(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ProcessorSettingsError, match=named):
        LoaderSettings(**arguments)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ({"video": 3}, "not a JSON object"),
        ({"video": {"frames": 8}}, "unknown argument"),
        ({"video": {"backend": "pyav"}}, "another decoder"),
        ({"video": {"video_backend": "pynvvideocodec"}}, "unknown video loader"),
        ({"video": {"video_backend": "qwen3_vl", "fps": 1, "num_frames": 8}}, "not both"),
    ],
)
def test_refused_flags(flags: Any, named: str) -> None:
    with pytest.raises(ProcessorSettingsError, match=named):
        settings_from_flags(flags)


def test_pairs_that_hold() -> None:
    assert LoaderSettings(name="opencv", num_frames=16, fps=1).ignored == ()
    assert LoaderSettings(name="qwen3_vl", num_frames=-1, fps=1).ignored == ("num_frames",)
    assert LoaderSettings(name="molmo2", num_frames=16, frame_recovery=True).ignored == ("num_frames",)


@pytest.mark.parametrize("loader", ["qwen2_vl", "qwen3_vl", "opencv_dynamic", "glm46v"])
def test_unknown_rate_is_refused_by_name(loader: str) -> None:
    with pytest.raises(MediaDecodeError, match=r"^clip.mp4: .*unknown frame rate"):
        load_frames(LoaderSettings(name=loader), 30, 0, where=Where(file="clip.mp4"))
    assert len(load_frames(LoaderSettings(name="opencv", num_frames=8), 30, 0).indices) == 8


@pytest.mark.parametrize(
    ("total", "fps", "duration", "named"),
    [
        (0, 30.0, None, "total_num_frames"),
        (True, 30.0, None, "total_num_frames"),
        (10**9, 30.0, None, "total_num_frames"),
        (30, -1.0, None, "fps of the clip"),
        (30, float("nan"), None, "fps of the clip"),
        (30, 1e-300, None, "fps of the clip"),
        (30, 30.0, -1.0, "duration"),
        (30, 30.0, float("inf"), "duration"),
    ],
)
def test_refused_clips(total: Any, fps: float, duration: float | None, named: str) -> None:
    with pytest.raises(MediaDecodeError, match=named):
        load_frames(LoaderSettings(name="opencv"), total, fps, duration)


def test_a_clip_of_one_frame() -> None:
    with pytest.raises(MediaDecodeError, match="too short"):
        load_frames(LoaderSettings(name="qwen2_vl"), 1, 30.0)
    assert load_frames(LoaderSettings(name="qwen3_vl"), 1, 30.0).indices == (0,)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(LOADER_ARGUMENTS)),
    st.integers(1, 3000),
    st.floats(0.5, 240),
    st.one_of(st.none(), st.floats(0.1, 60)),
)
def test_indices_ascend_inside_the_clip(name: str, total: int, fps: float, target: float | None) -> None:
    loader = LoaderSettings(name=name, fps=target, num_frames=16 if name == "openpangu" else None)
    try:
        loaded = load_frames(loader, total, fps)
    except MediaDecodeError as error:
        assert name in ("qwen2_vl", "opencv_dynamic", "glm46v")
        assert "too short" in str(error)  # noqa: PT017 - the property is of both outcomes
        return
    assert list(loaded.indices) == sorted(set(loaded.indices))
    assert 0 <= loaded.indices[0] <= loaded.indices[-1] < total
    assert loaded.do_sample_frames is (len(loaded.indices) == total)


@pytest.mark.parametrize(
    ("convention", "loader"), [("vllm", "opencv"), ("qwen2_vl", "qwen2_vl"), ("qwen3_vl", "qwen3_vl")]
)
@pytest.mark.parametrize("total", [5, 61, 450, 1494])
def test_conventions_and_loaders_agree(convention: str, loader: str, total: int) -> None:
    ours = sample_frames(convention, total=total, fps=23.976).indices
    count = 32 if loader == "opencv" else None
    assert load_frames(LoaderSettings(name=loader, num_frames=count), total, 23.976).indices == ours


def test_requests() -> None:
    clip = {"total": 30, "fps": 30.0}
    answer = answer_loader({**clip, "media_io_kwargs": '{"video": {"video_backend": "opencv", "num_frames": 32}}',
                            "video_processor": "Qwen3VLVideoProcessor"})  # fmt: skip
    assert answer["indices"] == [0, 10, 19, 29]
    assert answer["timestamps"] == [index / 30 for index in (0, 10, 19, 29)]
    assert (answer["loader"], answer["loaded"], answer["do_sample_frames"]) == ("opencv", 30, True)
    chosen = answer_loader({"total": 305, "fps": 5.0, "video_processor": "Qwen3VLVideoProcessor", "target_fps": 1})
    assert (chosen["loader"], len(chosen["indices"])) == ("qwen3_vl", 61)
    assert json.loads(chosen["media_io_kwargs"]) == {"video": {"video_backend": "qwen3_vl", "fps": 1}}
    assert answer_loader({**clip, "loader": "qwen3_vl", "num_frames": 16})["ignored"] == ["num_frames"]
    where = Where(file="requests.jsonl", line=2)
    with pytest.raises(ProcessorSettingsError, match=r"^requests.jsonl:2: .*not both"):
        answer_loader({**clip, "loader": "qwen3_vl", "num_frames": 16, "target_fps": 1}, where)
