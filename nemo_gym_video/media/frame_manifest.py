# SPDX-License-Identifier: Apache-2.0
"""Cached frames: the images that a frame manifest names, opened through the source policy, and their writing.

A manifest is a list of paths and nothing more, so each of its paths is let in like any other reference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, Where
from nemo_gym_video.media.image import encode_png, probe_image
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import FrameManifest

MANIFEST_FRAME_LIMIT = 4096


def open_manifest(
    sources: MediaSources, url: str, *, where: Where | None = None
) -> tuple[FrameManifest, tuple[MediaBlob, ...]]:
    """The manifest in ``url`` and its frames in order, each let in by the policy; decodes no pixels.

    Raises:
        RowError: the manifest itself is malformed.
        MediaSourceError: a frame's path is not absolute, or is one that the policy refuses.
        MediaDecodeError: a frame is no image, or frames differ in displayed size.
    """
    manifest = FrameManifest.from_url(url, where=where)
    if len(manifest.frame_paths) > MANIFEST_FRAME_LIMIT:
        raise MediaSourceError(
            "manifest names too many frames",
            code="media.too_large",
            got=len(manifest.frame_paths),
            allowed=str(MANIFEST_FRAME_LIMIT),
            where=where,
        )
    blobs: list[MediaBlob] = []
    sizes: list[tuple[int, int]] = []
    for path in manifest.frame_paths:
        if not os.path.isabs(path):
            raise MediaSourceError(
                "manifest frame path is not absolute", code="media.reference", got=path, where=where
            )
        blob = sources.open(path, kind="image", where=where)
        size = probe_image(blob, limits=sources.policy.limits, where=where).size
        sizes.append(size)
        if size != sizes[0]:
            raise MediaDecodeError(
                "manifest frames differ in size",
                code="media.frame_sizes",
                got=f"{size[0]}x{size[1]}",
                allowed=f"{sizes[0][0]}x{sizes[0][1]}",
                where=where,
            )
        blobs.append(blob)
    return manifest, tuple(blobs)


def write_manifest(frames: Iterable[npt.NDArray[np.uint8]], store: ContentStore, *, fps: float) -> FrameManifest:
    """Store ``frames`` (uint8 [height, width, 3] RGB, in order) as lossless PNGs and name them in a manifest.

    ``fps`` is frames a second of the sampled clip. Frames are taken one at a time; equal ones are stored once.
    """
    root = store.root.resolve()
    paths = [
        str(root / store.put(encode_png(frame), suffix=".png").path.relative_to(store.root)) for frame in frames
    ]
    if not paths:
        raise MediaDecodeError("no frame to write a manifest of", code="media.no_frames")
    return FrameManifest(frame_paths=tuple(paths), fps=fps)
