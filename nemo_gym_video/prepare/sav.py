# SPDX-License-Identifier: Apache-2.0
"""SA-V as published to tracking rows with labelled 6 fps stills: one row a video and variant."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym_video.errors import MediaDecodeError, PreparationError, Where
from nemo_gym_video.prepare import sav_native
from nemo_gym_video.prepare.expressions import Expressions, read_expressions
from nemo_gym_video.prepare.files import stable_seed
from nemo_gym_video.prepare.frames import StoredFrames, store_copies, store_frames
from nemo_gym_video.prepare.outcome import Outcome, Refusal
from nemo_gym_video.prepare.rows import check_text
from nemo_gym_video.prepare.sav_native import STRIDE, SavAnnotation, SavInput
from nemo_gym_video.prepare.sav_rows import TrackRules, Window, choose_window, track_row
from nemo_gym_video.prepare.sources import opened_clip, refusal_of
from nemo_gym_video.tracking.schema import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SavSource:
    """What to prepare from SA-V and how; every field enters the job's identity.

    ``rows_per_video`` draws that many windows of each video. ``expressions`` is a JSON file (``ref``).
    """

    root: Path
    task: Task
    split: sav_native.Split = "train"
    annotation: sav_native.Annotation = "manual"
    expressions: Path | None = None
    rules: TrackRules = field(default_factory=TrackRules)
    rows_per_video: int = 1
    seed: int = 0
    dataset: str = "SA-V"

    name = "sav"

    def settings(self) -> dict[str, Any]:
        """The settings as JSON, for the report and the identity of a resumed job."""
        return {**asdict(self), "root": str(self.root), "expressions": str(self.expressions or "")}

    def check(self) -> None:
        """Refuse settings that cannot work, before any input is read."""
        if not self.root.is_dir():
            raise PreparationError("folder does not exist", got=str(self.root), where="--root")
        if self.task == "ref" and self.expressions is None:
            raise PreparationError("task ref needs expressions", allowed="a JSON file", where="--expressions")

    def items(self) -> Iterator[dict[str, Any]]:
        """One item a video and variant, small enough to send to a worker."""
        words = self._expressions()
        for video in sav_native.find_videos(self.root, split=self.split, annotation=self.annotation):
            known = words.get(video.video_id, {})
            for variant in range(self.rows_per_video):
                yield {"video": asdict(video), "variant": variant, "expressions": known}

    def media_roots(self) -> tuple[Path, ...]:
        """None: rows name stills in the output."""
        return ()

    def sampling(self) -> dict[str, Any]:
        """None: rows hold stills."""
        return {}

    def prepare(self, item: Mapping[str, Any], media_root: Path) -> list[Outcome]:
        """The one outcome of an item; frames go below ``media_root``."""
        video = SavInput(**item["video"])
        input_id = video.video_id if self.rows_per_video == 1 else f"{video.video_id} row {item['variant']}"
        words = {int(number): text for number, text in item["expressions"].items()}
        try:
            return [self._prepare(video, int(item["variant"]), words, input_id, media_root)]
        except Refusal as refusal:
            return [Outcome.refused(input_id, refusal)]

    def _prepare(
        self, video: SavInput, variant: int, words: Mapping[int, str], input_id: str, media_root: Path
    ) -> Outcome:
        is_train = self.split == "train"
        read = sav_native.read_json_annotation if is_train else sav_native.read_png_annotation
        annotation = read(Path(video.annotation))
        rng = random.Random(stable_seed(self.seed, self.task, annotation.digest, variant))
        window = choose_window(
            annotation.masks,
            task=self.task,
            rules=self.rules,
            rng=rng,
            expressions=_by_column(annotation, words) if self.task == "ref" else None,
        )
        first = window.start * STRIDE
        frames = range(first, first + window.length * STRIDE, STRIDE)
        store = _clip_stills if is_train else _folder_stills
        stored, group, fps = store(video, annotation, frames, media_root)
        row = track_row(
            window,
            task=self.task,
            urls=stored.paths,
            fps=fps / STRIDE,
            rng=rng,
            metadata=self._metadata(video, annotation, window, stored, fps, group),
        )
        return Outcome(
            kind="row",
            input_id=input_id,
            row=row,
            group=group,
            manifests=(stored.manifest,),
            notes=dict(window.left_out),
        )

    def _metadata(
        self,
        video: SavInput,
        annotation: SavAnnotation,
        window: Window,
        stored: StoredFrames,
        fps: float,
        group: str,
    ) -> dict[str, Any]:
        kind = self.annotation if self.split == "train" else "png"
        return {
            "dataset": self.dataset,
            "split": self.split,
            "video_id": video.video_id,
            "video_digest": group,
            "annotation_type": kind,
            "annotation_digest": annotation.digest,
            "annotation_frames": list(range(window.start, window.start + window.length)),
            "video_frames": list(stored.indices),
            "timestamps": [round(time, 6) for time in stored.timestamps],
            "fps": fps / STRIDE,
            "original_size": list(annotation.size),
            "masklet_ids": [annotation.object_ids[one.column] for one in window.objects],
        }

    def _expressions(self) -> Expressions:
        return {} if self.expressions is None else read_expressions(self.expressions)


def _by_column(annotation: SavAnnotation, words: Mapping[int, str]) -> dict[int, str]:
    columns = {number: column for column, number in enumerate(annotation.object_ids)}
    return {columns[number]: check_text(text) for number, text in words.items() if number in columns}


def _clip_stills(
    video: SavInput, annotation: SavAnnotation, frames: range, media_root: Path
) -> tuple[StoredFrames, str, float]:
    """Decode the window of a train video; sizes and frame counts must fit the annotation."""
    from nemo_gym_video.media.sources import trusted_sources

    where = Where(file=Path(video.source).name)
    if not Path(video.source).is_file():
        raise Refusal("missing", "video file does not exist", got=video.source, where=where)
    with opened_clip(trusted_sources(), str(Path(video.source).absolute()), where=where) as (blob, clip):
        info = clip.info
        _check_fit(info.size, info.decodable, annotation, where)
        stored = store_frames(
            clip,
            list(frames),
            digest=blob.digest,
            root=media_root,
            form="jpeg",
            asked={"stride": STRIDE},
        )
        return stored, blob.digest, info.fps


def _folder_stills(
    video: SavInput, annotation: SavAnnotation, frames: range, media_root: Path
) -> tuple[StoredFrames, str, float]:
    """Copy the window of a val or test video's JPEGs; their size must fit the masks."""
    from nemo_gym_video.media.image import probe_image
    from nemo_gym_video.media.sources import blob_from_path

    folder = Path(video.source)
    files = sav_native.jpeg_frames(folder)
    where = Where(file=folder.name)
    if sorted(files) != list(range(len(files))):
        raise Refusal("count_mismatch", "frames are not numbered 0 to n - 1", got=len(files), where=where)
    try:
        sizes = {
            probe_image(blob_from_path(files[frame], kind="image")).size for frame in frames if frame in files
        }
    except MediaDecodeError as error:
        raise refusal_of(error, where) from error
    for size in sizes:
        _check_fit(size, len(files), annotation, where)
    digest = sav_native.frames_digest(files[frame] for frame in sorted(files))
    stored = store_copies(
        [files[frame] for frame in frames],
        list(frames),
        digest=digest,
        root=media_root,
        size=annotation.size,
        fps=sav_native.FPS,
    )
    return stored, digest, sav_native.FPS


def _check_fit(size: tuple[int, int], total: int, annotation: SavAnnotation, where: Where) -> None:
    if size != annotation.size:
        raise Refusal("size_mismatch", "masks and video differ in size (displayed, width x height)", got=size,
                      allowed=str(annotation.size), where=where)  # fmt: skip
    if annotation.video_frames is not None and annotation.video_frames != total:
        raise Refusal("count_mismatch", "video and annotation differ in video frames", got=total,
                      allowed=str(annotation.video_frames), where=where)  # fmt: skip
    if math.ceil(total / STRIDE) != len(annotation.masks):
        raise Refusal("count_mismatch", "annotated frames do not fit the video's", got=len(annotation.masks),
                      allowed=f"ceil({total} / {STRIDE}) = {math.ceil(total / STRIDE)}", where=where)  # fmt: skip
