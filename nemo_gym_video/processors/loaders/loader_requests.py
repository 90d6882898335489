# SPDX-License-Identifier: Apache-2.0
"""One request for an engine loader's frames as plain JSON, answered as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym_video.errors import ProcessorSettingsError, RowError, Where
from nemo_gym_video.processors.loaders.frame_loading import load_frames
from nemo_gym_video.processors.loaders.loader_choice import engine_flags, settings_from_flags
from nemo_gym_video.processors.loaders.loader_settings import LoaderSettings
from nemo_gym_video.processors.loaders.second_stage import SecondSampling, processor_frames

LOADER_KEYS = frozenset({"loader", "video_processor", "media_io_kwargs"})
"""Keys that make a sample request one for a loader."""

_CLIP = ("total", "fps", "duration")
# A request's word for an argument, and the engine's.
_ARGUMENTS = {
    "num_frames": "num_frames",
    "target_fps": "fps",
    "min_frames": "min_frames",
    "max_frames": "max_frames",
    "max_duration": "max_duration",
    "temporal_patch_size": "temporal_patch_size",
}


def answer_loader(request: Mapping[str, Any], where: Where | None = None) -> dict[str, Any]:
    """Answer a request: a clip, and either a loader with its arguments or what the engine goes by.

    The clip is ``total``, ``fps`` and perhaps ``duration``; the engine goes by ``video_processor`` and
    ``media_io_kwargs``. The answer has ``indices`` and ``timestamps`` of the frames that reach the model, the
    ``loader`` and how many frames it took (``loaded``), its ``do_sample_frames`` mark, arguments that it
    ``ignored``, and the ``media_io_kwargs`` that make a server load so.

    Raises:
        RowError: an unknown or missing key, or arguments in two places.
        ProcessorSettingsError: the settings contradict, or what the engine does is not known.
        MediaDecodeError: the loader fails on the clip.
    """
    known = {*LOADER_KEYS, *_CLIP, *_ARGUMENTS}
    for key in request:
        if key not in known:
            raise RowError("unknown key in a request that names a loader or what decides it", got=key, where=where,
                           allowed=", ".join(sorted(known)))  # fmt: skip
    for key in ("total", "fps"):
        if request.get(key) is None:
            raise RowError(f"loader request lacks {key!r}", where=where)
    try:
        settings = _settings(request, where)
    except ProcessorSettingsError as error:
        # The settings do not know the line that they stand in.
        raise ProcessorSettingsError(error.problem, got=error.got, allowed=error.allowed,
                                     where=error.where or where) from error  # fmt: skip
    loaded = load_frames(settings, request["total"], request["fps"], request.get("duration"), where=where)
    indices = loaded.indices
    processor = request.get("video_processor")
    if processor is not None:
        indices = processor_frames(SecondSampling(video_processor=processor), loaded, where=where)
    return {
        "indices": list(indices),
        "timestamps": [index / loaded.fps for index in indices] if loaded.fps > 0 else None,
        "loader": settings.name,
        "loaded": len(loaded.indices),
        "do_sample_frames": loaded.do_sample_frames,
        "ignored": list(settings.ignored),
        "media_io_kwargs": engine_flags(settings),
    }


def _settings(request: Mapping[str, Any], where: Where | None) -> LoaderSettings:
    given = {engine: request[key] for key, engine in _ARGUMENTS.items() if request.get(key) is not None}
    name, processor, flags = (request.get(key) for key in ("loader", "video_processor", "media_io_kwargs"))
    if flags is not None and (given or name is not None):
        raise RowError("the loader's arguments stand in two places", got=sorted(request), where=where,
                       allowed="media_io_kwargs, or loader and arguments one by one")  # fmt: skip
    if processor is not None and not isinstance(processor, str):
        raise ProcessorSettingsError("video_processor is not a class name", got=processor, where=where)
    if name is not None:
        return LoaderSettings(name=name, **given)
    # As a server whose flags name these arguments: it fills in what they leave out.
    return settings_from_flags({"video": given} if flags is None else flags, video_processor=processor)
