# SPDX-License-Identifier: Apache-2.0
"""The pictures of one SA-V video, once they are known to fit its annotation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.image import probe_image
from nemo_gym_video.media.sources import blob_from_path, trusted_sources
from nemo_gym_video.prepare.frame_folders import StoredFrames, store_copies, store_frames
from nemo_gym_video.prepare.opening import opened_clip, refusal_of
from nemo_gym_video.prepare.outcome import Refusal
from nemo_gym_video.prepare.sav import sav_published
from nemo_gym_video.prepare.sav.sav_published import STRIDE, SavAnnotation


@dataclass(frozen=True, slots=True)
class SavMedia:
    """An open video: its content ``digest``, its rate, and ``store``, which writes chosen frames as stills."""

    digest: str
    fps: float
    store: Callable[[Sequence[int], Path], StoredFrames]


@contextmanager
def opened_train(source: Path, annotation: SavAnnotation) -> Iterator[SavMedia]:
    """A train video; displayed size and number of frames must fit the annotation."""
    where = Where(file=source.name)
    with opened_clip(trusted_sources(), str(source.absolute()), where=where) as (blob, clip):
        info = clip.info
        _check_fit(info.size, info.decodable, annotation, where)

        def store(frames: Sequence[int], root: Path) -> StoredFrames:
            asked = {"stride": STRIDE}
            return store_frames(clip, frames, digest=blob.digest, root=root, form="jpeg", asked=asked)

        yield SavMedia(blob.digest, info.fps, store)


@contextmanager
def opened_folder(source: Path, annotation: SavAnnotation) -> Iterator[SavMedia]:
    """A val or test video: numbered JPEGs of the masks' size, which are copied byte for byte."""
    where = Where(file=source.name)
    files = sav_published.jpeg_frames(source)
    if sorted(files) != list(range(len(files))):
        raise Refusal("count_mismatch", "frames are not numbered 0 to n - 1", got=len(files), where=where)
    _check_fit(_size(files[0], where), len(files), annotation, where)
    digest = sav_published.frames_digest(files[frame] for frame in sorted(files))

    def store(frames: Sequence[int], root: Path) -> StoredFrames:
        for frame in frames:
            _check_size(_size(files[frame], where), annotation, where)
        return store_copies(
            [files[frame] for frame in frames],
            frames,
            digest=digest,
            root=root,
            size=annotation.size,
            fps=sav_published.FPS,
        )

    yield SavMedia(digest, sav_published.FPS, store)


def _size(file: Path, where: Where) -> tuple[int, int]:
    try:
        return probe_image(blob_from_path(file, kind="image")).size
    except MediaDecodeError as error:
        raise refusal_of(error, where) from error


def _check_size(size: tuple[int, int], annotation: SavAnnotation, where: Where) -> None:
    if size != annotation.size:
        raise Refusal("size_mismatch", "masks and video differ in size (displayed, width x height)", got=size,
                      allowed=str(annotation.size), where=where)  # fmt: skip


def _check_fit(size: tuple[int, int], total: int, annotation: SavAnnotation, where: Where) -> None:
    _check_size(size, annotation, where)
    if annotation.video_frames is not None and annotation.video_frames != total:
        raise Refusal("count_mismatch", "video and annotation differ in video frames", got=total,
                      allowed=str(annotation.video_frames), where=where)  # fmt: skip
    if math.ceil(total / STRIDE) != len(annotation.masks):
        raise Refusal("count_mismatch", "annotated frames do not fit the video's", got=len(annotation.masks),
                      allowed=f"ceil({total} / {STRIDE}) = {math.ceil(total / STRIDE)}", where=where)  # fmt: skip
