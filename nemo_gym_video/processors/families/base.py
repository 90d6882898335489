# SPDX-License-Identifier: Apache-2.0
"""What every processor family is made of: typed, checked, hashable settings that can count media.

A family is one frozen dataclass. Its fields are its settings; the default of a field is what the processor does
when a checkpoint does not set the key, and ``presets`` hold the values of released checkpoints. A field also says
under which names the setting may stand in a checkpoint or in a request (``setting``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

from nemo_gym_video.errors import ProcessorSettingsError, RowError, Where
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

Grid = tuple[int, int]
Block = Literal["image", "video", "both"]

LARGEST = 2**31 - 1
MAX_FRAMES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """How one setting is named, typed and bounded.

    ``flat`` names stand at the top of a document, in ``vision_config`` or in ``vision_config.args``; ``inner``
    names stand in the block (``image`` or ``video``, or a processor file of that kind); ``config`` names stand in
    ``config.json`` only. ``shared`` names stand at the top and feed several settings; any other name wins over
    them. Names may be dotted (``size.shortest_edge``); of two names in one file the earlier one wins. A setting
    that has no say in counts (``counts`` off) is no part of the fingerprint.
    """

    kind: type
    flat: tuple[str, ...]
    inner: tuple[str, ...]
    config: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    block: Block = "both"
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    optional: bool = False
    choices: tuple[Any, ...] = ()
    counts: bool = True

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return " or ".join(str(choice) for choice in self.choices)
        words = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}[self.kind]
        if self.low is not None:
            words += f" {'>' if self.open_low else '>='} {self.low:g}"
        if self.high is not None:
            words += f"{' and' if self.low is not None else ''} <= {self.high:g}"
        return words + (" or null" if self.optional else "")

    def check(self, name: str, value: object, where: Where | str | None = None) -> Any:
        """``value`` in the setting's type (an integer is fine where a number is asked for).

        Raises:
            ProcessorSettingsError: it has another type, is no finite number, or is out of range.
        """
        if value is None and self.optional:
            return None
        given = value
        if self.kind is float and type(value) is int and abs(value) <= LARGEST:
            value = float(value)
        fits = type(value) is self.kind
        if fits and isinstance(value, int | float) and not isinstance(value, bool):
            low = -math.inf if self.low is None else self.low
            high = LARGEST if self.high is None else self.high
            # No comparison holds for NaN.
            fits = (low < value if self.open_low else low <= value) and value <= high
        if not fits or (self.choices and value not in self.choices):
            raise ProcessorSettingsError(f"setting {name!r} does not fit", got=_shown(given), allowed=self.allowed,
                                         where=where)  # fmt: skip
        return value


def _shown(value: object) -> object:
    return "null" if value is None else value


def setting(
    default: object,
    *,
    kind: type,
    flat: tuple[str, ...],
    inner: tuple[str, ...] | None = None,
    **limits: Any,
) -> Any:
    """A settings field: its default, and the ``Key`` made of the rest (``inner`` defaults to ``flat``)."""
    key = Key(kind=kind, flat=flat, inner=flat if inner is None else inner, **limits)
    return field(default=default, metadata={"key": key})


def redefault(keys: Mapping[str, Key], name: str, default: object) -> Any:
    """The field ``name`` of a family's base, whose ``keys`` these are, with another default."""
    return field(default=default, metadata={"key": keys[name]})


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaTokens:
    """The marker strings of a family's prompt, and their ids where a released checkpoint fixes them.

    ``image`` and ``video`` are repeated once a feature; ``start`` and ``end`` wrap a run (empty where there are no
    wrappers). An id of ``None`` has to be looked up in the checkpoint's tokenizer.
    """

    image: str
    video: str
    start: str = ""
    end: str = ""
    others: tuple[str, ...] = ()
    image_id: int | None = None
    video_id: int | None = None
    start_id: int | None = None
    end_id: int | None = None

    @property
    def placeholder_strings(self) -> tuple[str, ...]:
        """The strings that may not stand literally in the text of a prompt."""
        names = (self.image, self.video, self.start, self.end, *self.others)
        return tuple(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, slots=True)
class ProcessorSettings(ABC):
    """Settings of one processor, checked when made. Equal settings are equal objects with one fingerprint."""

    family: ClassVar[str]
    rule_version: ClassVar[int] = 1
    tokens: ClassVar[MediaTokens]
    presets: ClassVar[Mapping[str, Mapping[str, object]]]
    checkpoint_names: ClassVar[tuple[str, ...]] = ()
    adjacent_regions_can_fuse: ClassVar[bool] = False

    image_token_id: int | None = setting(
        None, kind=int, optional=True, flat=("image_token_id",), low=0, counts=False
    )
    video_token_id: int | None = setting(
        None, kind=int, optional=True, flat=("video_token_id",), low=0, counts=False
    )

    def __post_init__(self) -> None:
        """Check every field's type and range, then what must hold between fields."""
        for name, key in type(self).keys().items():
            value = getattr(self, name)
            checked = key.check(name, value)
            if checked is not value:
                object.__setattr__(self, name, checked)
        self.check()

    @classmethod
    def keys(cls) -> Mapping[str, Key]:
        """Every field's ``Key`` by field name."""
        return {entry.name: entry.metadata["key"] for entry in dataclasses.fields(cls)}

    @classmethod
    def recognises(cls, name: str, config: Mapping[str, Any]) -> bool:
        """Whether a checkpoint's model type or class ``name`` is this family's.

        ``name`` is in lower case, letters and digits only; ``config`` is the content of ``config.json``, for
        families that share a name.
        """
        return name.startswith(cls.checkpoint_names)

    @classmethod
    def checkpoint_defaults(cls, names: tuple[str, ...]) -> Mapping[str, object]:
        """Defaults that a checkpoint's processor class has beside the fields' own; names as in ``recognises``."""
        return {}

    def check(self) -> None:
        """Raise ``ProcessorSettingsError`` when fields contradict one another."""
        return None

    @property
    def fingerprint(self) -> str:
        """``sha256:<hex>`` of the canonical settings, the family and the version of its rule."""
        return _fingerprint(self)

    @property
    def media_token_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that stand for features: as set, else those of the released checkpoints, if known.

        Where videos are made of the image marker, the image's id is the only one, whatever a config lists.
        """
        image = self.tokens.image_id if self.image_token_id is None else self.image_token_id
        video = self.tokens.video_id if self.video_token_id is None else self.video_token_id
        found = (image,) if self.tokens.image == self.tokens.video else (image, video)
        return tuple(dict.fromkeys(number for number in found if number is not None))

    @property
    def temporal_patch_size(self) -> int:
        """Frames that make one region of a video."""
        return 1

    @property
    def placeholder_strings(self) -> tuple[str, ...]:
        """Strings that may not stand literally in a prompt's text."""
        return self.tokens.placeholder_strings

    def values(self) -> dict[str, object]:
        """Every setting by its field name, in a fixed order: those first that counts depend on."""
        keys = sorted(self.keys().items(), key=lambda item: not item[1].counts)
        return {name: getattr(self, name) for name, _ in keys}

    def trainer_settings(self) -> dict[str, object]:
        """What a trainer must use to get the same counts: every setting with the family and fingerprint."""
        return {
            "family": self.family,
            "rule_version": self.rule_version,
            "fingerprint": self.fingerprint,
        } | self.values()

    def count_items(self, request: CountRequest) -> tuple[ItemCount, ...]:
        """The regions of every item of one model call, whose sizes were checked before."""
        counts = []
        for index, item in enumerate(request.items):
            with at_item(index):
                counts.append(self.count_item(item, request))
        return tuple(counts)

    @abstractmethod
    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """The regions of one item, by itself where the family counts items so."""

    @abstractmethod
    def engine_arguments(self) -> dict[str, object]:
        """vLLM's arguments, by the name of its Python option, under which the engine counts by these settings."""

    def grid_for_count(self, size: MediaSize, target_tokens: int) -> tuple[Grid, Grid] | None:
        """Patch grid (height, width) and processed size (width, height) of an image with ``target_tokens``.

        Tries the family's own rule at every budget the engine could have given; ``None`` unless exactly one grid
        comes out. A family whose count does not depend on engine state has one candidate.
        """
        return only(self.count_item(size, CountRequest(items=(size,))).regions, target_tokens)


@lru_cache(maxsize=256)
def _fingerprint(settings: ProcessorSettings) -> str:
    values = {name: getattr(settings, name) for name, key in settings.keys().items() if key.counts}
    body = {"family": settings.family, "rule_version": settings.rule_version, "settings": values}
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


@contextmanager
def at_item(index: int) -> Iterator[None]:
    """Name the item in a ``RowError`` from within."""
    try:
        yield
    except RowError as error:
        raise error.at(Where(item=index)) from error


def only(candidates: Iterable[Region], target_tokens: int) -> tuple[Grid, Grid] | None:
    """Grid and processed size of the candidates with ``target_tokens``, when they all have the same."""
    found = {(region.grid, region.processed_size) for region in candidates if region.total == target_tokens}
    if len(found) != 1:
        return None
    grid, size = found.pop()
    return None if grid is None or size is None else (grid, size)


def search_budgets(grid_at: Callable[[int], Grid], low: int, high: int, area: int) -> set[Grid]:
    """Every grid of ``area`` cells that ``grid_at`` gives for a budget from ``low`` to ``high``.

    Neither side of the grid may shrink as the budget grows. Then a stretch of budgets whose ends agree is
    constant, and one whose ends lie both below or both above ``area`` holds nothing; the rest is halved.
    """
    found: set[Grid] = set()
    pending = [(low, high)]
    while pending:
        low, high = pending.pop()
        small, large = grid_at(low), grid_at(high)
        if not small[0] * small[1] <= area <= large[0] * large[1]:
            continue
        if small == large:
            found.add(small)
            continue
        middle = (low + high) // 2
        pending += [(low, middle), (middle + 1, high)]
    return found


def check_size(item: MediaSize, index: int | None = None) -> None:
    """Raise ``RowError`` for a size no processor can take: sides 1 to 2**31 - 1, frames 1 to 100,000."""
    where = None if index is None else Where(item=index)
    if item.kind not in ("image", "video"):
        raise RowError("item kind is unknown", got=item.kind, allowed="image or video", where=where)
    for name, limit in (("width", LARGEST), ("height", LARGEST), ("frames", MAX_FRAMES)):
        value = getattr(item, name)
        if type(value) is not int or not 1 <= value <= limit:
            raise RowError(f"item {name} does not fit", got=value, allowed=f"an integer from 1 to {limit}",
                           where=where)  # fmt: skip
    if item.kind == "image" and item.frames != 1:
        raise RowError("an image has one frame", got=item.frames, allowed="1", where=where)
