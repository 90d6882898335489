# SPDX-License-Identifier: Apache-2.0
"""Which loader vLLM takes for a checkpoint, and the start flags that make it take a given one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.loaders.loader_settings import ALL_FRAMES, LOADER_ARGUMENTS, LoaderSettings

SERVER_NUM_FRAMES = 32
"""``num_frames`` that the server hands its loader when nobody names one."""

CHOICE_SINCE = "0.31"
"""vLLM from here on chooses by video processor class; before, ``opencv`` unless told otherwise."""

LOADER_OF_PROCESSOR = MappingProxyType(
    {
        "Qwen2VLVideoProcessor": "qwen2_vl",
        "Qwen3VLVideoProcessor": "qwen3_vl",
        "Glm4vVideoProcessor": "opencv_dynamic",
        "Glm46VVideoProcessor": "glm46v",
        "Molmo2VideoProcessor": "molmo2",
    }
)
"""Loader by ``video_processor_type`` of ``video_preprocessor_config.json``. Any other class: ``opencv``.

``nemotron_vl`` and ``openpangu`` are bound to no class: they run where a start flag names them.
"""

LOADER_UNKNOWN = frozenset(
    {
        "Cosmos3EdgeVideoProcessor",
        "Glm5NextVideoProcessor",
        "GlmgaVideoProcessor",
        "LlavaOnevision2VideoProcessor",
        "MiniMaxM3VLVideoProcessor",
    }
)
"""Classes that this or a later version of the engine binds to a loader whose rule is not known here."""

PROCESSOR_OF_MODEL_TYPE = MappingProxyType(
    {
        "cosmos3_edge": "Cosmos3EdgeVideoProcessor",
        "glm46v": "Glm46VVideoProcessor",
        "glm4v": "Glm4vVideoProcessor",
        "glm5_next": "Glm5NextVideoProcessor",
        "glmga": "GlmgaVideoProcessor",
        "minimax_m3_vl": "MiniMaxM3VLVideoProcessor",
        "molmo2": "Molmo2VideoProcessor",
        "qwen2_5_omni": "Qwen2VLVideoProcessor",
        "qwen2_5_vl": "Qwen2VLVideoProcessor",
        "qwen2_vl": "Qwen2VLVideoProcessor",
        "qwen3_5": "Qwen3VLVideoProcessor",
        "qwen3_5_moe": "Qwen3VLVideoProcessor",
        "qwen3_omni_moe": "Qwen2VLVideoProcessor",
        "qwen3_vl": "Qwen3VLVideoProcessor",
        "qwen3_vl_moe": "Qwen3VLVideoProcessor",
    }
)
"""Class by ``model_type`` of ``config.json``, for processor files that do not name one, such as Qwen2.5-VL's."""


def video_processor_of(video_processor_type: object = None, *, model_type: object = None) -> str | None:
    """The checkpoint's video processor class: what its processor file says, else what its model type implies."""
    if isinstance(video_processor_type, str):
        return video_processor_type
    return PROCESSOR_OF_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None


def loader_for(video_processor: str | None, *, engine_version: str | None = None) -> str:
    """Name of the loader that vLLM takes for a video processor class when no flag names one.

    Args:
        video_processor: the class name, None for a checkpoint without one.
        engine_version: as ``0.32.0``; None is a version that chooses (``CHOICE_SINCE`` or later).

    Raises:
        ProcessorSettingsError: the engine has a loader for the class and its rule is not known here.
    """
    if engine_version is not None and _release(engine_version) < _release(CHOICE_SINCE):
        return "opencv"
    if video_processor in LOADER_UNKNOWN:
        raise ProcessorSettingsError(
            "the engine has a loader of its own for this video processor, whose frames cannot be predicted here",
            got=video_processor,
            allowed="name a loader in --media-io-kwargs, as video_backend: " + ", ".join(LOADER_ARGUMENTS),
        )
    return LOADER_OF_PROCESSOR.get(video_processor or "", "opencv")


def engine_flags(settings: LoaderSettings) -> str:
    """The value of vLLM's ``--media-io-kwargs`` that makes the server load as ``settings`` says, as JSON.

    The loader is always named, so that the checkpoint's class does not decide; ``num_frames`` is written out where
    the loader looks at it, because the server would fill in 32.
    """
    arguments: dict[str, object] = {"video_backend": settings.name, **settings.arguments}
    if "num_frames" in LOADER_ARGUMENTS[settings.name]:
        arguments.setdefault("num_frames", ALL_FRAMES)
    return json.dumps({"video": arguments})


def settings_from_flags(
    media_io_kwargs: str | Mapping[str, object] = "{}",
    *,
    video_processor: str | None = None,
    engine_version: str | None = None,
) -> LoaderSettings:
    """What a server started with ``media_io_kwargs`` tells its loader.

    Args:
        media_io_kwargs: the flag's JSON, or the object that it holds.
        video_processor: the checkpoint's class, which decides where the flags name no loader.
        engine_version: as in ``loader_for``.

    Raises:
        ProcessorSettingsError: not a JSON object, or an argument that is unknown here or out of range.
    """
    flags = _object(media_io_kwargs, "--media-io-kwargs")
    arguments = dict(_object(flags.get("video", {}), "--media-io-kwargs, key 'video'"))
    name = arguments.pop("video_backend", None)
    if name is None:
        name = loader_for(video_processor, engine_version=engine_version)
    if arguments.pop("backend", "opencv") != "opencv":
        raise ProcessorSettingsError("frames of another decoder than OpenCV cannot be predicted", where="backend",
                                     allowed="opencv")  # fmt: skip
    known = [field.name for field in fields(LoaderSettings) if field.name != "name"]
    for key in arguments:
        if key not in known:
            raise ProcessorSettingsError("unknown argument of a video loader", got=key,
                                         allowed=", ".join(["video_backend", "backend", *known]))  # fmt: skip
    if isinstance(name, str) and "num_frames" in LOADER_ARGUMENTS.get(name, ()):
        arguments.setdefault("num_frames", SERVER_NUM_FRAMES)
    return LoaderSettings(name=name, **arguments)  # type: ignore[arg-type]  # checked by LoaderSettings itself


def _object(value: object, what: str) -> Mapping[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ProcessorSettingsError(f"not valid JSON ({error})"[:300], where=what) from error
    if not isinstance(value, Mapping):
        raise ProcessorSettingsError("not a JSON object", got=value, where=what)
    return value


def _release(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    except ValueError as error:
        raise ProcessorSettingsError("not an engine version", got=version, allowed="as 0.32.0") from error
