# SPDX-License-Identifier: Apache-2.0
"""Frames of a clip as image files under a media root, each set with a manifest that says what it holds.

A video's files stand in ``media/{digest}/{form}/`` (the first 16 hex digits of the content's SHA-256), named by
the frame's index in the clip, so rows and tasks share them and odd file names never reach a row. A manifest is
written last; a set without one, or one whose files have other sizes or digests, is done again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nemo_gym_video.prepare.whole_files import dump_line, write_bytes, write_text

FrameForm = Literal["png", "jpeg"]

JPEG_SETTINGS: Mapping[str, Any] = {"quality": 92, "subsampling": 0, "optimize": False}
_SUFFIX: dict[str, str] = {"png": ".png", "jpeg": ".jpg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFrames:
    """Frames on disk. ``paths`` are relative to the media root, one for each asked index, repeats included.

    ``timestamps`` are presentation times in seconds; ``manifest`` is the manifest's path relative to the root.
    """

    paths: tuple[str, ...]
    indices: tuple[int, ...]
    timestamps: tuple[float, ...]
    size: tuple[int, int]
    manifest: str


def media_folder(digest: str) -> str:
    """The folder of one video's derived media, relative to the media root."""
    return f"media/{digest.removeprefix('sha256:')[:16]}"


def store_frames(
    clip: Any, indices: Sequence[int], *, digest: str, root: Path, form: FrameForm, asked: Mapping[str, Any]
) -> StoredFrames:
    """Write the frames of ``indices`` of an open ``media.video.VideoClip`` below ``root`` and their manifest.

    ``asked`` is recorded as given (what was asked of the sampler). Whole files from an earlier run are kept.
    """
    info = clip.info
    folder = f"{media_folder(digest)}/{form}"
    names = {index: f"{folder}/{index:06d}{_SUFFIX[form]}" for index in sorted(set(indices))}
    manifest = f"{folder}/manifest-{_set_name(indices, asked)}.json"
    stored = StoredFrames(
        paths=tuple(names[index] for index in indices),
        indices=tuple(indices),
        timestamps=tuple(float(info.timestamps[index]) for index in indices),
        size=info.size,
        manifest=manifest,
    )
    if manifest_holds(root, manifest):
        return stored
    files: dict[str, dict[str, Any]] = {}
    for frame in clip.iter_frames(list(names)):
        data = encode(frame.pixels, form)
        write_bytes(root / names[frame.index], data)
        files[names[frame.index]] = _file_record(frame.index, frame.timestamp, data)
    record = {
        "video": digest,
        "asked": dict(asked),
        "delivered": list(indices),
        "size": list(info.size),
        "fps": info.fps,
        "total": info.total,
        "decodable": info.decodable,
        "rotation": info.rotation,
        "variable_rate": info.variable_rate,
        "decoder": info.decoder,
        "form": form if form == "png" else {"jpeg": dict(JPEG_SETTINGS)},
        "files": files,
    }
    write_text(root / manifest, dump_line(record))
    return stored


def _file_record(frame: int, timestamp: float, data: bytes) -> dict[str, Any]:
    """What a manifest says about one file: its frame, its time in seconds, its content."""
    return {
        "frame": frame,
        "timestamp": timestamp,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def store_copies(
    files: Sequence[Path], indices: Sequence[int], *, digest: str, root: Path, size: tuple[int, int], fps: float
) -> StoredFrames:
    """Copy published JPEG frames byte for byte; ``files[k]`` is frame ``indices[k]`` of a clip at ``fps``."""
    folder = f"{media_folder(digest)}/copy"
    asked = {"copied": True}
    paths = tuple(f"{folder}/{index:06d}{file.suffix.lower()}" for index, file in zip(indices, files, strict=True))
    manifest = f"{folder}/manifest-{_set_name(indices, asked)}.json"
    timestamps = tuple(index / fps for index in indices)
    stored = StoredFrames(paths=paths, indices=tuple(indices), timestamps=timestamps, size=size, manifest=manifest)
    if manifest_holds(root, manifest):
        return stored
    record: dict[str, Any] = {"video": digest, "asked": asked, "delivered": list(indices), "size": list(size)}
    record["files"] = {}
    for file, path, index, timestamp in zip(files, paths, indices, timestamps, strict=True):
        data = file.read_bytes()
        write_bytes(root / path, data)
        sha = hashlib.sha256(data).hexdigest()
        record["files"][path] = {"frame": index, "timestamp": timestamp, "bytes": len(data), "sha256": sha}
    write_text(root / manifest, dump_line(record))
    return stored


def store_video(path: Path, *, digest: str, root: Path) -> str:
    """Put a video under the media root, as a hard link where the file system can; returns its relative path."""
    name = f"{media_folder(digest)}/video{path.suffix.lower() or '.mp4'}"
    target = root / name
    if target.exists() and target.stat().st_size == path.stat().st_size:
        return name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(os.path.realpath(path), target)
    except OSError:
        write_bytes(target, path.read_bytes())
    return name


def manifest_holds(root: Path, manifest: str) -> bool:
    """Whether a manifest is whole and every file that it lists has the size and digest that it says."""
    try:
        record = json.loads((root / manifest).read_text("utf-8"))
        files = record["files"]
        return all(_same(root / name, entry) for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def encode(pixels: NDArray[np.uint8], form: FrameForm) -> bytes:
    """PNG (lossless) or JPEG bytes of ``pixels``, uint8 [h, w, 3] RGB."""
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if form == "png":
        image.save(buffer, "PNG", compress_level=4)
    else:
        image.save(buffer, "JPEG", **JPEG_SETTINGS)
    return buffer.getvalue()


def _same(path: Path, entry: Mapping[str, Any]) -> bool:
    data = path.read_bytes()
    return bool(len(data) == entry["bytes"]) and bool(hashlib.sha256(data).hexdigest() == entry["sha256"])


def _set_name(indices: Sequence[int], asked: Mapping[str, Any]) -> str:
    text = json.dumps([list(indices), dict(asked)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
