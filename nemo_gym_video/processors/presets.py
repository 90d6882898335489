# SPDX-License-Identifier: Apache-2.0
"""Loads processor settings from a preset or a checkpoint folder, with overrides laid over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.checkpoints import read_folder
from nemo_gym_video.processors.documents import Found, read_strictly, unknown
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.families.base import ProcessorSettings

__all__ = ["LoadedSettings", "ProcessorSettings", "load_settings", "preset_names", "read_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, the place each value came from by field name, and what a person should know about the files."""

    settings: ProcessorSettings
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()


def preset_names() -> tuple[str, ...]:
    """Names that ``load_settings`` knows without a folder."""
    return tuple(name for family in FAMILIES.values() for name in family.presets)


def load_settings(
    name_or_path: str | Path, *, overrides: Mapping[str, Any] | None = None, family: str | None = None
) -> ProcessorSettings:
    """Settings of a preset (``nemotron_omni``) or of a checkpoint folder, with ``overrides`` laid over them.

    Overrides take a family's checkpoint names, flat or nested as in the checkpoint's files, or in blocks
    ``{"image": {…}, "video": {…}}``; what they do not name stays. ``family`` reads a folder as that family, and
    with ``hf`` asks the folder's own transformers image processor.

    Raises:
        ProcessorSettingsError: no such preset or folder, or a key or value that does not fit (naming the key, the
            nearest known one, and the file).

    >>> from nemo_gym_video import load_settings
    >>> settings = load_settings("nemotron_omni", overrides={"video": {"maintain_aspect_ratio": False}})
    >>> settings.family
    'nemotron_omni'
    """
    return read_settings(name_or_path, overrides=overrides, family=family).settings


def read_settings(
    name_or_path: str | Path, *, overrides: Mapping[str, Any] | None = None, family: str | None = None
) -> LoadedSettings:
    """As ``load_settings``, and where every value came from."""
    name = str(name_or_path)
    kind, places, notes = _base(name, family)
    for field, entry in read_strictly(kind, {} if overrides is None else overrides, "overrides").items():
        places[field] = (entry,)
    keys = kind.keys()
    values = {}
    for field, found in places.items():
        values[field], *others = [keys[field].check(field, entry.value, entry.source) for entry in found]
        if others:
            raise _conflict(field, keys[field].flat[0], found)
    try:
        settings = kind(**values)
    except ProcessorSettingsError as error:
        raise error.at(name) from error
    sources = {field: places[field][0].source if field in places else "default" for field in keys}
    return LoadedSettings(settings=settings, sources=sources, notes=notes)


def _base(
    name: str, family: str | None
) -> tuple[type[ProcessorSettings], dict[str, tuple[Found, ...]], tuple[str, ...]]:
    if family is not None and family not in FAMILIES:
        raise unknown("processor family", family, tuple(FAMILIES))
    for kind in FAMILIES.values():
        if name in kind.presets and family in (None, kind.family):
            values = kind.presets[name].items()
            return kind, {field: (Found(value, f"preset {name}"),) for field, value in values}, ()
    if family == "hf":
        return FAMILIES["hf"], {"path": (Found(name, "folder"),)}, ()
    if not _is_folder(name):
        raise unknown("processor preset or folder", name, preset_names())
    checkpoint = read_folder(Path(name), family=family)
    return checkpoint.kind, dict(checkpoint.found), checkpoint.notes


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _conflict(field: str, name: str, found: tuple[Found, ...]) -> ProcessorSettingsError:
    places = "; ".join(f"{entry.source} = {json.dumps(entry.value)}" for entry in found)
    return ProcessorSettingsError(
        f"the checkpoint's files disagree on {field!r} ({places})",
        code="processor.checkpoint",
        allowed=f"one value, or an override of {name!r} that settles it",
    )
