# SPDX-License-Identifier: Apache-2.0
"""The parts of a row contract: its items, and the processor that their regions were predicted for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nemo_gym_video.errors import ContractError
from nemo_gym_video.messages import MediaKind
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.regions import MediaSize, Region

CONTRACT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractProcessor:
    """The processor and engine state that the regions were predicted for.

    ``fingerprint`` is that of the settings at the time of prediction; it differs from ``settings.fingerprint``
    when the family's rule has changed since. ``settings`` are None for a contract that was read from a row and
    whose family takes its settings from a folder: a row does not say what is opened.
    """

    family: str
    settings: ProcessorSettings | None
    fingerprint: str
    state: CallState = dataclasses.field(default_factory=CallState)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractItem:
    """One logical image or video of a row.

    Attributes:
        kind: what the item is; ``counted_as`` is what the processor sees of it (a video that is sent as single
            images is counted as ``image``).
        source: the reference a person would name; ``digest``, sha256 of the content bytes (of the frames' digests,
            for frames that travel one by one).
        size: displayed (width, height) in pixels.
        frames: frames that reach the processor, 1 for an image.
        frame_indices: their places in the source, from 0; ``total_frames`` and ``fps`` (frames a second) describe
            the source, ``timestamps`` are seconds. None where the row does not say.
        decoder: name and version of what measured a video.
        message, part: place of the item's first part in the row's input.
        turn: the model call that sees the item first, from 0; None is the first one with tokens for it.
        regions: predicted regions; None where no processor was configured.
    """

    kind: MediaKind
    source: str
    size: tuple[int, int] | None
    counted_as: MediaKind
    frames: int = 1
    digest: str | None = None
    frame_indices: tuple[int, ...] | None = None
    total_frames: int | None = None
    fps: float | None = None
    timestamps: tuple[float, ...] | None = None
    decoder: str | None = None
    message: int | None = None
    part: int | None = None
    turn: int | None = None
    regions: tuple[Region, ...] | None = None

    @property
    def total(self) -> int | None:
        """Predicted placeholder tokens of the item."""
        return None if self.regions is None else sum(region.total for region in self.regions)

    @property
    def media_sizes(self) -> tuple[MediaSize, ...]:
        """What the processor is given for the item: one video, one image, or an image a frame."""
        if self.size is None:
            raise ContractError("item has no size, so its tokens cannot be predicted", got=self.source)
        width, height = self.size
        if self.counted_as == "video":
            return (MediaSize("video", width, height, self.frames),)
        return (MediaSize("image", width, height),) * self.frames
