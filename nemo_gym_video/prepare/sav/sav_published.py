# SPDX-License-Identifier: Apache-2.0
"""Reads SA-V as published: train videos with JSON masklets, val/test folders of JPEGs with PNG masks.

Annotations come every 4th video frame: annotation index k is video frame 4k. An absent object is an all-zero mask
(or null). Nothing here decides what becomes a row.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nemo_gym_video.errors import MediaDecodeError, RowError, Where
from nemo_gym_video.media.image import read_image
from nemo_gym_video.media.sources import blob_from_path
from nemo_gym_video.prepare.outcome import Refusal
from nemo_gym_video.prepare.whole_files import file_digest
from nemo_gym_video.tasks.tracking.masks import RleMask, encode

STRIDE = 4
"""Video frames from one annotation to the next."""
FPS = 24.0
"""Frames a second of the published videos."""

PUBLISHED_LICENCE = (
    "SA-V is published by Meta under CC BY 4.0: keep the attribution. Expressions of text-referred sets come "
    "under their own publishers' terms."
)
_PUBLISHED_ID = re.compile(r"sav_\d{6}")

Split = Literal["train", "val", "test"]
Annotation = Literal["manual", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavInput:
    """One video of the data set, by its files' paths, before anything is opened.

    ``source`` is the mp4 (train) or the folder of JPEGs (val, test), ``annotation`` the JSON or the folder of
    PNGs.
    """

    video_id: str
    source: str
    annotation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavAnnotation:
    """Masks of one video. ``masks[k][object]`` is a validated mask or None when absent; ``size`` is (w, h).

    ``video_frames`` is the number of video frames that the annotation claims, None where it claims none.
    ``object_ids`` are the masklet ids, in the order of ``masks[k]``. ``digest`` is of the annotation's bytes.
    """

    size: tuple[int, int]
    video_frames: int | None
    object_ids: tuple[int, ...]
    masks: tuple[tuple[RleMask | None, ...], ...]
    digest: str


def find_videos(root: Path, *, split: Split, annotation: Annotation = "manual") -> list[SavInput]:
    """The videos of a split in the order of their ids, without opening any.

    ``train`` looks for ``**/{id}_manual.json`` (or ``_auto``) and for mp4s without one; ``val`` and ``test`` read
    ``sav_{split}.txt`` where it stands, else the folders of ``JPEGImages_24fps``.
    """
    if split == "train":
        ending = f"_{annotation}.json"
        found = {path.name.removesuffix(ending): path.parent for path in root.rglob(f"*{ending}")}
        found |= {path.stem: path.parent for path in root.rglob("*.mp4")}
        return [
            SavInput(video_id=name, source=str(folder / f"{name}.mp4"), annotation=str(folder / f"{name}{ending}"))
            for name, folder in sorted(found.items())
        ]
    base = root / f"sav_{split}" if (root / f"sav_{split}").is_dir() else root
    listing = base / f"sav_{split}.txt"
    if listing.is_file():
        names = [line.strip() for line in listing.read_text("utf-8").splitlines() if line.strip()]
    elif (base / "JPEGImages_24fps").is_dir():
        names = [path.name for path in (base / "JPEGImages_24fps").iterdir() if path.is_dir()]
    else:
        names = []
    return [
        SavInput(
            video_id=name,
            source=str(base / "JPEGImages_24fps" / name),
            annotation=str(base / "Annotations_6fps" / name),
        )
        for name in sorted(set(names))
    ]


def are_published(videos: Sequence[SavInput]) -> bool:
    """Whether videos are those of SA-V: all named as its publisher names them (``sav_000001``)."""
    return bool(videos) and all(_PUBLISHED_ID.fullmatch(video.video_id) for video in videos)


def read_json_annotation(path: Path) -> SavAnnotation:
    """Read ``{id}_manual.json`` or ``{id}_auto.json``; every mask's run total is checked before use."""
    where = Where(file=path.name)
    if not path.is_file():
        raise Refusal("missing", "annotation file does not exist", got=str(path), where=where)
    try:
        data = path.read_bytes()
        body = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal("unreadable", f"annotation is not readable JSON ({error})"[:300], where=where) from error
    if not isinstance(body, dict) or not isinstance(body.get("masklet"), list):
        raise Refusal("malformed", "annotation has no list 'masklet'", where=where)
    frames = body["masklet"]
    ids = body.get("masklet_id")
    if not isinstance(ids, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        raise Refusal("malformed", "annotation has no list of integer masklet ids", got=ids, where=where)
    if len(set(ids)) != len(ids):
        raise Refusal("malformed", "masklet ids repeat", got=ids, where=where)
    size = (_whole(body, "video_width", where), _whole(body, "video_height", where))
    count = _whole(body, "video_frame_count", where)
    masks = []
    for index, frame in enumerate(frames):
        if not isinstance(frame, list) or len(frame) != len(ids):
            raise Refusal("malformed", "a frame's masks do not match the masklet ids",
                          got=len(frame) if isinstance(frame, list) else frame, allowed=f"{len(ids)} masks",
                          where=Where(file=path.name, field=f"masklet[{index}]"))  # fmt: skip
        place = f"masklet[{index}]"
        masks.append(tuple(_mask(cell, size, Where(file=path.name, field=place)) for cell in frame))
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    return SavAnnotation(size=size, video_frames=count, object_ids=tuple(ids), masks=tuple(masks), digest=digest)


def _whole(body: Mapping[str, Any], name: str, where: Where) -> int:
    value = body.get(name)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if not 0 < number < 1e7 or number != int(number):
        raise Refusal("malformed", f"{name} is no positive whole number", got=value, where=where)
    return int(number)


def _mask(cell: object, size: tuple[int, int], where: Where) -> RleMask | None:
    if cell is None:
        return None
    if not isinstance(cell, Mapping):
        raise Refusal("bad_mask", "mask is no RLE object", got=cell, where=where)
    height_width = cell.get("size")
    if height_width != [size[1], size[0]]:
        raise Refusal("size_mismatch", "mask size differs from the annotation's video size", got=height_width,
                      allowed=f"{[size[1], size[0]]}", where=where)  # fmt: skip
    try:
        mask = RleMask.from_coco(height_width, cell.get("counts"))
    except RowError as error:
        raise Refusal("bad_mask", error.problem, got=error.got, where=where) from error
    return mask if mask.area else None


def read_png_annotation(folder: Path) -> SavAnnotation:
    """Read ``Annotations_6fps/{id}/{object}/{frame:05d}.png``: one binary PNG an object, which may overlap.

    A frame without a file is an absent object; annotation index k stands for video frame ``4 k``.
    """
    where = Where(file=folder.name)
    if not folder.is_dir():
        raise Refusal("missing", "annotation folder does not exist", got=str(folder), where=where)
    objects = sorted((path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()), key=_number)
    files = {path: {_frame_number(png, where): png for png in sorted(path.glob("*.png"))} for path in objects}
    last = max((max(numbers) for numbers in files.values() if numbers), default=-1)
    size: tuple[int, int] | None = None
    columns: list[list[RleMask | None]] = []
    digest = hashlib.sha256()
    for path in objects:
        column: list[RleMask | None] = []
        for frame in range(0, last + 1, STRIDE):
            png = files[path].get(frame)
            if png is None:
                column.append(None)
                continue
            try:
                image = read_image(blob_from_path(png, kind="image"))
            except MediaDecodeError as error:
                place = Where(file=str(png.relative_to(folder.parent)))
                raise Refusal("unreadable", error.problem, got=error.got, where=place) from error
            if size is not None and size != image.size:
                raise Refusal(
                    "size_mismatch", "masks differ in size", got=image.size, allowed=str(size), where=where
                )
            size = image.size
            digest.update(f"{path.name}/{frame}:{file_digest(png)}\n".encode())
            mask = encode(image.pixels.any(axis=2))
            column.append(mask if mask.area else None)
        columns.append(column)
    if size is None:
        raise Refusal("no_object", "annotation folder holds no mask", where=where)
    return SavAnnotation(
        size=size,
        video_frames=None,
        object_ids=tuple(int(path.name) for path in objects),
        masks=tuple(zip(*columns, strict=True)),
        digest="sha256:" + digest.hexdigest(),
    )


def _number(path: Path) -> int:
    return int(path.name)


def _frame_number(png: Path, where: Where) -> int:
    if not png.stem.isdecimal() or int(png.stem) % STRIDE:
        raise Refusal("malformed", "mask file is not named by a multiple of 4", got=png.name, where=where)
    return int(png.stem)


def jpeg_frames(folder: Path) -> dict[int, Path]:
    """The JPEGs of a val or test video by frame number."""
    if not folder.is_dir():
        raise Refusal("missing", "folder of frames does not exist", got=str(folder), where=Where(file=folder.name))
    frames = {int(path.stem): path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg")
              and path.stem.isdecimal()}  # fmt: skip
    if not frames:
        raise Refusal("no_frames", "folder holds no JPEG frames", got=str(folder), where=Where(file=folder.name))
    return frames


def frames_digest(files: Iterator[Path]) -> str:
    """Content digest of a clip that comes as image files, in order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file_digest(file).encode())
    return "sha256:" + digest.hexdigest()
