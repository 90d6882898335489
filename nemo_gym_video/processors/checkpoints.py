# SPDX-License-Identifier: Apache-2.0
"""Reads processor settings from a checkpoint folder's JSON files.

How strict: a checkpoint's files hold much that is none of our business. A key that looks like a mistyped setting
is an error, an unknown key of a processor file is noted, any other key is ignored. Files that disagree on a
setting are an error unless an override settles it, because engine and trainer may read different ones.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import ProcessorSettingsError
from nemo_gym_video.processors.documents import CONFIG_LEVELS, Found, leaves, names_of, same
from nemo_gym_video.processors.families import FAMILIES
from nemo_gym_video.processors.families.base import ProcessorSettings

_CONFIG = "config.json"
_PROCESSOR = "processor_config.json"
_IMAGE = "preprocessor_config.json"
_VIDEO = "video_preprocessor_config.json"
_FILE_LIMIT = 16 << 20

# Keys of processor files that have no say in token counts.
_UNRELATED_NAMES = """
    audio_ms_per_token audio_seq_length auto_map chat_template crop_size crop_to_patches data_format
    default_to_square device disable_grouping do_center_crop do_convert_rgb do_normalize do_pad do_rescale
    do_resize do_sample_frames feature_extractor feature_extractor_type fps image_mean image_processor_type
    image_seq_length image_size image_std image_token input_data_format max_frames min_frames model_input_names
    norm_mean norm_std num_frames pad_size
    processor_class resample rescale_factor return_metadata return_tensors size_divisor spatial_patch_size
    tokenizer tokenizer_class transformers_version use_fast use_token_compression video_metadata
    video_processor_type video_pruning_rate video_token
"""
_UNRELATED = frozenset(_UNRELATED_NAMES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """What a folder says: per field one or more places (more when they disagree), and notes for a person."""

    kind: type[ProcessorSettings]
    found: Mapping[str, tuple[Found, ...]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the files that may hold settings, and the blocks it speaks for (none: ``config.json``'s names)."""

    label: str
    content: Mapping[str, Any]
    blocks: tuple[str, ...] = ()
    strict: bool = field(default=False)


def read_folder(folder: Path, *, family: str | None = None) -> CheckpointSettings:
    """The settings in ``folder``; the family is told from its model type and class names unless given.

    Raises:
        ProcessorSettingsError: no processor files, an unreadable file, an unknown family, or a mistyped key.
    """
    files = {name: _read_json(folder / name) for name in (_CONFIG, _PROCESSOR, _IMAGE, _VIDEO)}
    if not any(files.values()):
        raise ProcessorSettingsError(
            "folder holds no processor files",
            code="processor.checkpoint",
            got=str(folder),
            allowed=", ".join(files),
        )
    sections = tuple(_sections(files))
    names = tuple(_class_names(files, sections))
    kind = _recognise(names, files[_CONFIG], folder) if family is None else FAMILIES[family]
    places: dict[str, list[Found]] = {}
    notes: list[str] = []
    for section in sections:
        if section.content.get("do_resize") is False:
            raise ProcessorSettingsError(
                "setting 'do_resize' is off, and counts without resizing are not predicted",
                got=False,
                allowed="true",
                where=f"{folder}: {section.label}",
            )
        for name, entry in _read_section(kind, section, folder, notes).items():
            places.setdefault(name, []).append(entry)
    defaults = kind.checkpoint_defaults(names).items()
    found: dict[str, tuple[Found, ...]]
    found = {name: (Found(value, "default of the processor class"),) for name, value in defaults}
    for name, entries in places.items():
        agree = all(same(entries[0], entry) for entry in entries)
        found[name] = tuple(entries[:1]) if agree else tuple(entries)
    return CheckpointSettings(kind=kind, found=found, notes=tuple(notes))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _FILE_LIMIT:
            raise ProcessorSettingsError(
                "file is too large", code="processor.checkpoint", allowed="16 MiB", where=str(path)
            )
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ProcessorSettingsError(
            f"file is unreadable ({error})", code="processor.checkpoint", where=str(path)
        ) from error
    if not isinstance(content, dict):
        raise ProcessorSettingsError(
            "file holds no JSON object", code="processor.checkpoint", got=type(content).__name__, where=str(path)
        )
    return content


def _sections(files: Mapping[str, Mapping[str, Any]]) -> Iterator[_Section]:
    processor = files[_PROCESSOR]
    parts = {name: processor.get(name) for name in ("image_processor", "video_processor")}
    image, video = (content if isinstance(content, dict) else {} for content in parts.values())
    yield _Section(_CONFIG, files[_CONFIG])
    yield _Section(_PROCESSOR, {name: value for name, value in processor.items() if name not in parts})
    # Without a video processor of its own, transformers takes the image processor's values for videos too.
    blocks = ("image",) if files[_VIDEO] or video else ("image", "video")
    yield _Section(f"{_PROCESSOR}: image_processor", image, blocks, True)
    yield _Section(_IMAGE, files[_IMAGE], blocks, True)
    yield _Section(f"{_PROCESSOR}: video_processor", video, ("video",), True)
    yield _Section(_VIDEO, files[_VIDEO], ("video",), True)


def _class_names(files: Mapping[str, Mapping[str, Any]], sections: tuple[_Section, ...]) -> Iterator[str]:
    """Model type and class names, the most telling first, in lower case letters and digits."""
    config = files[_CONFIG]
    architectures = config.get("architectures")
    given = [config.get("model_type"), *(architectures if isinstance(architectures, list) else ())]
    given += [section.content.get("processor_class") for section in sections]
    if not any(isinstance(name, str) for name in given):
        # Models share image processors, so their names say least.
        kinds = ("image_processor_type", "video_processor_type")
        given += [section.content.get(kind) for kind in kinds for section in sections]
    for name in given:
        if isinstance(name, str):
            yield "".join(letter for letter in name.lower() if letter.isalnum())


def _recognise(names: tuple[str, ...], config: Mapping[str, Any], folder: Path) -> type[ProcessorSettings]:
    for name in names:
        for kind in FAMILIES.values():
            if kind.recognises(name, config):
                return kind
    raise ProcessorSettingsError(
        "checkpoint is of no known family",
        code="processor.unknown",
        got=list(names) or None,
        allowed=f"a checkpoint of {', '.join(FAMILIES)}; family 'hf' asks any transformers image processor",
        where=str(folder),
    )


def _section_names(kind: type[ProcessorSettings], section: _Section) -> dict[str, list[str]]:
    """Per field the dotted names that count in a section, in the order of their weight."""
    names: dict[str, list[str]] = {}
    for name, key in kind.keys().items():
        if not section.blocks:
            names[name] = [*key.config, *(level + flat for level in CONFIG_LEVELS for flat in key.flat)]
        elif key.block in (*section.blocks, "both"):
            names[name] = [*key.inner, *key.flat]
        else:
            names[name] = list(key.flat)
    return names


def _read_section(
    kind: type[ProcessorSettings], section: _Section, folder: Path, notes: list[str]
) -> dict[str, Found]:
    given = dict(leaves(section.content))
    names = _section_names(kind, section)
    found: dict[str, Found] = {}
    for name, paths in names.items():
        # Files are saved with nulls for what is not set.
        path = next((path for path in paths if given.get(path) is not None), None)
        if path is not None:
            found[name] = Found(given[path], f"{folder / section.label}: {path}")
    here = tuple(dict.fromkeys(path for paths in names.values() for path in paths))
    elsewhere = names_of(kind)
    for path in given:
        if path not in here and path not in elsewhere:
            _judge_unknown(path, here, section, folder, notes)
    return found


@cache
def _every_name() -> frozenset[str]:
    """The last parts of the names of every family's settings."""
    return frozenset(path.rpartition(".")[2] for kind in FAMILIES.values() for path in names_of(kind))


def _judge_unknown(path: str, known: tuple[str, ...], section: _Section, folder: Path, notes: list[str]) -> None:
    level, _, name = path.rpartition(".")
    if name in _UNRELATED or level.partition(".")[0] in _UNRELATED or name.startswith("_"):
        return
    if name in _every_name():
        # A setting of another family, left over in this one's files.
        return
    siblings = [entry.rpartition(".")[2] for entry in known if entry.rpartition(".")[0] == level]
    near = difflib.get_close_matches(name[:200], siblings, 1, 0.8 if section.strict else 0.88)
    if near:
        full = f"{level}.{near[0]}" if level else near[0]
        raise ProcessorSettingsError(
            f"unknown setting {path!r}; did you mean {full!r}?", where=str(folder / section.label)
        )
    if section.strict:
        notes.append(f"{section.label}: unknown key {path!r} is not taken into account")
