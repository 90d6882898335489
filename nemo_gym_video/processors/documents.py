# SPDX-License-Identifier: Apache-2.0
"""Finds a family's settings in nested JSON by the names that the family declares (see ``families.base.Key``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.families.base import ProcessorSettings

CONTAINERS = {
    "image": ("image", "images_kwargs", "image_processor"),
    "video": ("video", "videos_kwargs", "video_processor"),
    "both": ("image", "images_kwargs", "image_processor", "video", "videos_kwargs", "video_processor"),
}
CONFIG_LEVELS = ("", "vision_config.", "vision_config.args.")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A value and its place, for a person: ``config.json: vision_config.args.min_num_patches``."""

    value: object
    source: str
    shared: bool = False


def leaves(document: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every value that is no object, by its dotted name."""
    for name, value in document.items():
        if not isinstance(name, str):
            raise ProcessorSettingsError("setting name is no string", got=name)
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


@lru_cache(maxsize=64)
def names_of(kind: type[ProcessorSettings]) -> Mapping[str, tuple[tuple[str, bool], ...]]:
    """Every dotted name an override may use: the fields it sets, each with whether the name is a shared one."""
    index: dict[str, list[tuple[str, bool]]] = {}
    for field, key in kind.keys().items():
        paths = [level + name for name in key.flat for level in CONFIG_LEVELS]
        paths += [f"{box}.{name}" for name in key.inner for box in CONTAINERS[key.block]]
        paths += list(key.config)
        for path in dict.fromkeys(paths):
            index.setdefault(path, []).append((field, False))
        for path in key.shared:
            index.setdefault(path, []).append((field, True))
    return {path: tuple(fields) for path, fields in index.items()}


def read_strictly(kind: type[ProcessorSettings], document: object, source: str) -> dict[str, Found]:
    """The fields that ``document`` sets; every leaf must be a known name, and no field may get two values."""
    if not isinstance(document, Mapping):
        raise ProcessorSettingsError("settings are no object", got=document, allowed="an object", where=source)
    index = names_of(kind)
    found: dict[str, Found] = {}
    for path, value in leaves(document):
        if path not in index:
            raise _unknown_key(kind, path, source)
        for field, shared in index[path]:
            new = Found(value, f"{source}: {path}", shared)
            old = found.get(field)
            if old is None or (old.shared and not shared):
                found[field] = new
            elif old.shared == shared and not same(old, new):
                raise ProcessorSettingsError(
                    f"setting {field!r} is set twice, by {old.source.rpartition(' ')[2]!r} and {path!r}",
                    got=[old.value, value],
                    allowed="one value",
                    where=source,
                )
    return found


def same(one: Found, other: Found) -> bool:
    """Whether two places give one value; ``true`` is not 1."""
    return one.value == other.value and isinstance(one.value, bool) == isinstance(other.value, bool)


def _unknown_key(kind: type[ProcessorSettings], path: str, source: str) -> ProcessorSettingsError:
    known = tuple(names_of(kind))
    if any(name.startswith(path + ".") for name in known):
        return ProcessorSettingsError(
            f"setting {path!r} is a block of settings", allowed="an object", where=source
        )
    return unknown(f"setting of {kind.family}", path, known, where=source)


def unknown(what: str, name: str, known: tuple[str, ...], *, where: str | None = None) -> ProcessorSettingsError:
    """The error for a name that is not among ``known``, with the nearest that is."""
    near = _nearest(name[:200], known)
    hint = f"; did you mean {near!r}?" if near else ""
    short = ", ".join(sorted(entry for entry in known if "." not in entry))
    return ProcessorSettingsError(f"unknown {what} {name[:200]!r}{hint}", allowed=short, where=where)


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name nearest to ``name``: among names of equal depth first, then by the last part alone."""
    level = [entry for entry in known if entry.count(".") == name.count(".")]
    found = difflib.get_close_matches(name, level, 1, 0.5)
    if not found:
        flat = [entry for entry in known if "." not in entry]
        found = difflib.get_close_matches(name.rpartition(".")[2], flat, 1, 0.5)
    return found[0] if found else None
