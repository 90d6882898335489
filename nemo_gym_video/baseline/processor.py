# SPDX-License-Identifier: Apache-2.0
"""Opens the media of a request and expands each item to its placeholder tokens.

Counts come from the package's own counters with the settings given, so they are those of a Nemotron Omni-shaped
processor. An image becomes ``<img>``, its placeholders, ``</img>``; a video one such block for every tubelet, each
after its label, joined by newlines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from nemo_gym_video.baseline.chat import ChatMedia
from nemo_gym_video.baseline.media_cache import MediaCache
from nemo_gym_video.baseline.seen import Pixels, SeenMedia
from nemo_gym_video.baseline.tokenizer import IMAGE, IMG_END, IMG_START, encode
from nemo_gym_video.media.frame_manifest import open_manifest
from nemo_gym_video.media.image import read_image
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.video import open_clip
from nemo_gym_video.messages import is_manifest_url
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region
from nemo_gym_video.processors.sampling import sample_frames, tubelet_labels

_LONGEST_SIDE = 768


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorConfig:
    """How media is sampled and counted.

    ``sampling`` is a convention of ``tokens.sampling`` for native videos, ``num_frames`` its request.
    With ``joint_budget`` all images of a request share one budget, as in vLLM without a processor cache; otherwise
    every item is counted alone, as in transformers.
    """

    settings: NemotronOmniSettings
    max_model_len: int
    media_roots: tuple[Path, ...] = ()
    num_frames: int = 32
    sampling: str = "nemo_rl"
    joint_budget: bool = True
    cache_bytes: int = 512 << 20


class MediaProcessor:
    """Opens and expands; safe for threads."""

    def __init__(self, config: ProcessorConfig) -> None:
        """Resolve the media roots; one that is no folder is a ``MediaSourceError``."""
        self._config = config
        self._sources = MediaSources(SourcePolicy(config.media_roots))
        self._cache = MediaCache(config.cache_bytes)

    def open_all(self, media: Sequence[ChatMedia]) -> tuple[SeenMedia, ...]:
        """Open every item, in order. Raises ``MediaSourceError``, ``MediaDecodeError`` or ``RowError``."""
        return tuple(self._open(item) for item in media)

    def expand(self, media: Sequence[SeenMedia]) -> list[list[int]]:
        """Token ids of every item, in prompt order."""
        counts = self._count([MediaSize(item.kind, *item.size, len(item.frames)) for item in media])
        return [self._tokens(item, count) for item, count in zip(media, counts, strict=True)]

    def _count(self, sizes: Sequence[MediaSize]) -> tuple[ItemCount, ...]:
        settings, limit = self._config.settings, self._config.max_model_len
        groups = [sizes] if self._config.joint_budget else [[size] for size in sizes]
        return tuple(
            count
            for group in groups
            for count in count_request(settings, CountRequest(items=tuple(group), max_model_len=limit)).items
        )

    def _tokens(self, item: SeenMedia, count: ItemCount) -> list[int]:
        if item.kind == "image":
            return _block(count.regions[0])
        labels = tubelet_labels(
            item.indices, fps=item.fps, temporal_patch_size=self._config.settings.temporal_patch_size
        )
        out: list[int] = []
        for label, region in zip(labels, count.regions, strict=True):
            out += encode(f"\n{label}" if out else label) + _block(region)
        return out

    def _open(self, item: ChatMedia) -> SeenMedia:
        if item.kind == "video" and is_manifest_url(item.url):
            return self._open_manifest(item)
        blob = self._sources.open(item.url, kind=item.kind, where=item.where)
        load = self._load_image if item.kind == "image" else self._load_video
        return self._cache.get((item.kind, blob.digest), lambda: load(blob, item))

    def _load_image(self, blob: MediaBlob, item: ChatMedia) -> SeenMedia:
        image = read_image(blob, limits=self._sources.policy.limits, where=item.where)
        return SeenMedia(kind="image", frames=(_shrink(image.pixels),), size=image.size)

    def _load_video(self, blob: MediaBlob, item: ChatMedia) -> SeenMedia:
        config = self._config
        with open_clip(blob, limits=self._sources.policy.limits, where=item.where) as clip:
            info = clip.info
            sample = sample_frames(
                config.sampling,
                total=info.total,
                fps=info.fps,
                num_frames=config.num_frames,
                temporal_patch_size=config.settings.temporal_patch_size,
                where=item.where,
            )
            frames = tuple(_shrink(frame.pixels) for frame in clip.iter_frames(sample.indices))
        return SeenMedia(
            kind="video",
            frames=frames,
            size=info.size,
            indices=sample.indices,
            timestamps=tuple(float(info.timestamps[index]) for index in sample.indices),
            fps=info.fps,
        )

    def _open_manifest(self, item: ChatMedia) -> SeenMedia:
        manifest, blobs = open_manifest(self._sources, item.url, where=item.where)
        digest = hashlib.sha256("".join(blob.digest for blob in blobs).encode()).hexdigest()
        return self._cache.get(
            ("frames", digest, manifest.fps), lambda: self._load_frames(blobs, manifest.fps, item)
        )

    def _load_frames(self, blobs: Sequence[MediaBlob], fps: float, item: ChatMedia) -> SeenMedia:
        limits = self._sources.policy.limits
        size, frames = (0, 0), []
        for blob in blobs:
            image = read_image(blob, limits=limits, where=item.where)
            size = image.size
            frames.append(_shrink(image.pixels))
        indices = tuple(range(len(frames)))
        return SeenMedia(
            kind="video",
            frames=tuple(frames),
            size=size,
            indices=indices,
            timestamps=tuple(index / fps for index in indices),
            fps=fps,
        )


def _block(region: Region) -> list[int]:
    return [IMG_START, *[IMAGE] * region.total, IMG_END]


def _shrink(pixels: Pixels) -> Pixels:
    """A copy of at most 768 pixels on the longer side, owning its memory."""
    height, width = pixels.shape[:2]
    factor = _LONGEST_SIDE / max(height, width)
    if factor >= 1:
        return pixels.copy()
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
