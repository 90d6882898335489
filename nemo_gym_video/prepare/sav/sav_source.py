# SPDX-License-Identifier: Apache-2.0
"""SA-V as published to tracking rows with labelled 6 fps stills: one row a video and variant."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.frame_folders import StoredFrames
from nemo_gym_video.prepare.outcome import Outcome, Refusal
from nemo_gym_video.prepare.row_parts import Transport, check_text
from nemo_gym_video.prepare.sav import sav_published
from nemo_gym_video.prepare.sav.expressions import Expressions, read_expressions
from nemo_gym_video.prepare.sav.sav_media import SavMedia, opened_folder, opened_train
from nemo_gym_video.prepare.sav.sav_published import STRIDE, SavAnnotation, SavInput
from nemo_gym_video.prepare.sav.sav_rows import TrackRules, Window, choose_window, track_row
from nemo_gym_video.prepare.whole_files import stable_seed
from nemo_gym_video.tasks.tracking.schema import Task

DATASET = "SA-V"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavSource:
    """What to prepare from SA-V and how; every field enters the job's identity.

    ``rows_per_video`` draws that many windows of each video. ``expressions`` is a JSON file (``ref``).
    """

    root: Path
    task: Task
    split: sav_published.Split = "train"
    annotation: sav_published.Annotation = "manual"
    expressions: Path | None = None
    rules: TrackRules = field(default_factory=TrackRules)
    rows_per_video: int = 1
    seed: int = 0
    dataset: str = DATASET

    name = "sav"
    transports: ClassVar[tuple[Transport, ...]] = ("stills",)

    def settings(self) -> dict[str, Any]:
        """The settings as JSON, for the report and the identity of a resumed job."""
        return {**asdict(self), "root": str(self.root), "expressions": str(self.expressions or "")}

    def check(self) -> None:
        """Refuse settings that cannot work, before any input is read."""
        if not self.root.is_dir():
            raise PreparationError(
                "folder does not exist", code="prepare.missing", got=str(self.root), where="--root"
            )
        if self.task == "ref" and self.expressions is None:
            raise PreparationError("task ref needs expressions", allowed="a JSON file", where="--expressions")

    def licence(self) -> str | None:
        """The terms of SA-V when every video is one of its own, by its name; None for other videos."""
        if self.dataset != DATASET:
            return None
        videos = sav_published.find_videos(self.root, split=self.split, annotation=self.annotation)
        return sav_published.PUBLISHED_LICENCE if sav_published.are_published(videos) else None

    def items(self) -> Iterator[dict[str, Any]]:
        """One item a video and variant, small enough to send to a worker."""
        words = self._expressions()
        for video in sav_published.find_videos(self.root, split=self.split, annotation=self.annotation):
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
        if self.split == "train":
            annotation, opened = sav_published.read_json_annotation(Path(video.annotation)), opened_train
        else:
            annotation, opened = sav_published.read_png_annotation(Path(video.annotation)), opened_folder
        with opened(Path(video.source), annotation) as media:
            return self._row(video, variant, words, input_id, annotation, media, media_root)

    def _row(
        self,
        video: SavInput,
        variant: int,
        words: Mapping[int, str],
        input_id: str,
        annotation: SavAnnotation,
        media: SavMedia,
        media_root: Path,
    ) -> Outcome:
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
        stored = media.store(list(frames), media_root)
        row = track_row(
            window,
            task=self.task,
            urls=stored.paths,
            fps=media.fps / STRIDE,
            rng=rng,
            metadata=self._metadata(video, annotation, window, stored, media),
        )
        return Outcome(
            kind="row",
            input_id=input_id,
            row=row,
            group=media.digest,
            manifests=(stored.manifest,),
            notes=dict(window.left_out),
        )

    def _metadata(
        self,
        video: SavInput,
        annotation: SavAnnotation,
        window: Window,
        stored: StoredFrames,
        media: SavMedia,
    ) -> dict[str, Any]:
        kind = self.annotation if self.split == "train" else "png"
        return {
            "dataset": self.dataset,
            "split": self.split,
            "video_id": video.video_id,
            "video_digest": media.digest,
            "annotation_type": kind,
            "annotation_digest": annotation.digest,
            "annotation_frames": list(range(window.start, window.start + window.length)),
            "video_frames": list(stored.indices),
            "timestamps": [round(time, 6) for time in stored.timestamps],
            "fps": media.fps / STRIDE,
            "original_size": list(annotation.size),
            "masklet_ids": [annotation.object_ids[one.column] for one in window.objects],
        }

    def _expressions(self) -> Expressions:
        return {} if self.expressions is None else read_expressions(self.expressions)


def _by_column(annotation: SavAnnotation, words: Mapping[int, str]) -> dict[int, str]:
    columns = {number: column for column, number in enumerate(annotation.object_ids)}
    return {columns[number]: check_text(text) for number, text in words.items() if number in columns}
