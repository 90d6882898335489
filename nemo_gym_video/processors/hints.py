# SPDX-License-Identifier: Apache-2.0
"""Finds the one processor setting under which a family's own rule yields what the engine emitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import MediaSize

# Values in common use beside those of the presets, by the end of the setting's name.
_USUAL: dict[str, tuple[int, ...]] = {
    "temporal_patch_size": (1, 2),
    "target_num_patches": (256, 576, 1024, 2304),
    "max_num_tiles": (1, 4, 6, 12),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """``setting`` at ``engine_value`` gives exactly the lengths found; the contract had ``contract_value``."""

    setting: str
    contract_value: object
    engine_value: object

    def __str__(self) -> str:
        """One sentence that says what to set."""
        return (
            f"{self.setting}={_shown(self.engine_value)} gives exactly that and the contract has "
            f"{_shown(self.contract_value)}: start the engine with {self.setting}={_shown(self.contract_value)}, "
            f"or prepare the rows with {_shown(self.engine_value)}"
        )


def explain(
    settings: ProcessorSettings, sizes: Sequence[MediaSize], state: CallState, found: Sequence[int]
) -> Hint | None:
    """The single change of a setting, or else of the frame count, that reproduces the run lengths ``found``."""
    wanted = tuple(found)
    for name, value in _alternatives(settings):
        change: dict[str, Any] = {name: value}
        try:
            changed = dataclasses.replace(settings, **change)
        except ProcessorSettingsError:
            continue
        if _lengths(changed, sizes, state) == wanted:
            return Hint(setting=name, contract_value=getattr(settings, name), engine_value=value)
    for preset in type(settings).presets:
        if _lengths(load_settings(preset), sizes, state) == wanted:
            return Hint(setting="preset", contract_value="other values", engine_value=preset)
    return _frames(settings, sizes, state, wanted)


def _alternatives(settings: ProcessorSettings) -> Iterator[tuple[str, object]]:
    kind = type(settings)
    # A switch explains more than a number that happens to fit.
    for field in sorted(
        dataclasses.fields(kind), key=lambda field: not isinstance(getattr(settings, field.name), bool)
    ):
        current = getattr(settings, field.name)
        values: list[object] = [preset[field.name] for preset in kind.presets.values() if field.name in preset]
        values.append(field.default)
        values += [value for ending, usual in _USUAL.items() if field.name.endswith(ending) for value in usual]
        if isinstance(current, bool):
            values = [not current]
        for value in dict.fromkeys(values):
            if value is not None and value is not dataclasses.MISSING and value != current:
                yield field.name, value


def _frames(
    settings: ProcessorSettings, sizes: Sequence[MediaSize], state: CallState, wanted: tuple[int, ...]
) -> Hint | None:
    """Another number of frames of the same clip, near where tokens grow with frames."""
    if len(sizes) != 1 or sizes[0].kind != "video":
        return None
    size = sizes[0]
    total = sum(_lengths(settings, sizes, state) or ())
    if not total:
        return None
    guess = round(size.frames * sum(wanted) / total)
    for frames in range(min(guess + 2, 100_000), max(guess - 3, 0), -1):
        other = dataclasses.replace(size, frames=frames)
        if frames != size.frames and _lengths(settings, [other], state) == wanted:
            return Hint(setting="num_frames", contract_value=size.frames, engine_value=frames)
    return None


def _lengths(settings: ProcessorSettings, sizes: Sequence[MediaSize], state: CallState) -> tuple[int, ...] | None:
    try:
        counted = count_request(settings, state.request(sizes))
    except (RowError, ProcessorSettingsError):
        return None
    return tuple(length for item in counted.items for length in item.run_lengths)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
