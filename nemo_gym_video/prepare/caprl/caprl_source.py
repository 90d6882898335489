# SPDX-License-Identifier: Apache-2.0
"""CAPRL questions to multiple-choice rows on a native video or on tagged lossless frames."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym_video.errors import PreparationError, RowError, Where
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.messages import text_part, video_part
from nemo_gym_video.prepare.caprl.caprl_published import (
    PUBLISHED_LICENCE,
    Columns,
    ReadItem,
    is_published,
    question_count,
    read_question,
    read_records,
)
from nemo_gym_video.prepare.caprl.option_text import keeps_order
from nemo_gym_video.prepare.frame_folders import store_frames, store_video
from nemo_gym_video.prepare.mcqa_prompt import LETTERS, mcqa_prompt
from nemo_gym_video.prepare.opening import opened_clip
from nemo_gym_video.prepare.outcome import Outcome, Refusal
from nemo_gym_video.prepare.row_parts import (
    Transport,
    agent_ref,
    check_text,
    chosen_transport,
    tagged_frame,
    user_message,
)
from nemo_gym_video.prepare.whole_files import stable_seed
from nemo_gym_video.processors.sampling import CONVENTIONS, sample_frames

DATASET = "CAPRL"
AGENT = "mcqa_simple_agent"
PROMPT_VERSION = "mcqa-1"
DEFAULT_FRAMES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CaprlSource:
    """What to prepare from CAPRL and how; every field enters the job's identity.

    ``video_roots`` are the folders below which videos are looked for, in order. ``transport`` is the source video,
    or ``num_frames`` (None: 64) tagged PNG frames sampled by ``convention``. ``copy_videos`` puts the videos
    under the output's media root (as hard links where possible), so that rows need no other root. ``shuffle``
    moves options by seed.
    """

    input: Path
    video_roots: tuple[Path, ...]
    transport: Transport = "video"
    num_frames: int | None = None
    convention: str = "vllm"
    copy_videos: bool = False
    shuffle: bool = False
    columns: Columns = field(default_factory=Columns)
    min_frames: int = 2
    seed: int = 0
    dataset: str = DATASET

    name = "caprl"
    transports: ClassVar[tuple[Transport, ...]] = ("video", "frames")

    def settings(self) -> dict[str, Any]:
        """The settings as JSON, for the report and the identity of a resumed job."""
        roots = [str(root) for root in self.video_roots]
        return {**asdict(self), "input": str(self.input), "video_roots": roots}

    def check(self) -> None:
        """Refuse settings that cannot work, before any input is read."""
        chosen_transport(self.name, self.transport, self.transports)
        if not self.input.is_file():
            raise PreparationError(
                "input file does not exist", code="prepare.missing", got=str(self.input), where="--input"
            )
        for root in self.video_roots:
            if not root.is_dir():
                raise PreparationError(
                    "folder does not exist", code="prepare.missing", got=str(root), where="--video-root"
                )
        if self.convention not in CONVENTIONS:
            raise PreparationError("unknown sampling convention", got=self.convention,
                                   allowed=", ".join(CONVENTIONS), where="--convention")  # fmt: skip

    def licence(self) -> str | None:
        """The terms of the published question set and its videos; None for files of any other origin."""
        return PUBLISHED_LICENCE if self.dataset == DATASET and is_published(self.input) else None

    def items(self) -> Iterator[dict[str, Any]]:
        """One item a question."""
        for line, record in read_records(self.input):
            for place in range(question_count(record)):
                yield {"line": line, "record": record, "place": place}

    def media_roots(self) -> tuple[Path, ...]:
        """Where rows' source videos are found."""
        return self.video_roots

    def sampling(self) -> dict[str, Any]:
        """What an engine is asked for a native video."""
        return {"convention": self.convention, "num_frames": self.num_frames}

    def prepare(self, item: Mapping[str, Any], media_root: Path) -> list[Outcome]:
        """The one outcome of a question; frames go below ``media_root``."""
        where = Where(file=self.input.name, line=int(item["line"]))
        input_id = f"{where} question {int(item['place']) + 1}"
        try:
            if isinstance(item["record"], str):
                raise Refusal("malformed", item["record"], where=where)
            read = read_question(item["record"], int(item["place"]), columns=self.columns, where=where)
            check_text("\n".join((read.question, *read.options)), where=where)
            return [self._prepare(read, input_id, where, media_root)]
        except Refusal as refusal:
            return [Outcome.refused(input_id, refusal)]

    def _prepare(self, read: ReadItem, input_id: str, where: Where, media_root: Path) -> Outcome:
        sources = _sources(self.video_roots)
        with opened_clip(sources, read.video, where=where) as (blob, clip):
            info = clip.info
            if info.decodable < self.min_frames:
                raise Refusal("too_short", "video has too few frames", got=info.decodable,
                              allowed=f"at least {self.min_frames}", where=where)  # fmt: skip
            manifests: tuple[str, ...] = ()
            metadata: dict[str, Any] = {"video_frames": info.decodable, "fps": info.fps, "size": list(info.size)}
            if self.transport == "frames":
                parts, manifest = self._frames(read.video, clip, blob.digest, where, media_root)
                manifests = (manifest,)
            else:
                _check_ends(clip)
                path = blob.path
                assert path is not None
                url = store_video(path, digest=blob.digest, root=media_root) if self.copy_videos else read.video
                parts = [video_part(url)]
        options, answer = self._arranged(read, blob.digest)
        row = {
            "responses_create_params": {
                "input": [user_message([*parts, text_part(mcqa_prompt(read.question, options))])]
            },
            "agent_ref": agent_ref(AGENT),
            "options": [{letter: text} for letter, text in zip(LETTERS, options, strict=False)],
            "expected_answer": LETTERS[answer],
            "grading_mode": "strict_single_letter_boxed",
            "metadata": {
                "dataset": self.dataset,
                "input": input_id,
                "video": read.video,
                "video_digest": blob.digest,
                **metadata,
                "prompt_version": PROMPT_VERSION,
            },
        }
        return Outcome(kind="row", input_id=input_id, row=row, group=blob.digest, manifests=manifests)

    def _frames(
        self, video: str, clip: Any, digest: str, where: Where, media_root: Path
    ) -> tuple[list[dict[str, Any]], str]:
        info, count = clip.info, self.num_frames or DEFAULT_FRAMES
        try:
            sample = sample_frames(
                self.convention, total=info.decodable, fps=info.fps, num_frames=count, where=where
            )
        except RowError as error:
            raise Refusal("too_short", error.problem, got=error.got, allowed=error.allowed, where=where) from error
        asked = {"convention": self.convention, "num_frames": count}
        stored = store_frames(clip, sample.indices, digest=digest, root=media_root, form="png", asked=asked)
        pairs = zip(stored.paths, stored.indices, strict=True)
        return [tagged_frame(path, source=video, index=index) for path, index in pairs], stored.manifest

    def _arranged(self, read: ReadItem, digest: str) -> tuple[list[str], int]:
        """Options in row order and the answer's place; shuffled by seed unless an option speaks of the others."""
        options = list(read.options)
        if not self.shuffle or keeps_order(options):
            return options, read.answer
        rng = random.Random(stable_seed(self.seed, digest, read.question, *options))
        rng.shuffle(options)
        return options, options.index(read.options[read.answer])


@lru_cache(maxsize=4)
def _sources(roots: tuple[Path, ...]) -> MediaSources:
    """One entrance a process: it remembers the digests of files that several questions ask about."""
    return MediaSources(SourcePolicy(roots=roots))


def _check_ends(clip: Any) -> None:
    """Decode the first and last frame: a native video is only as good as what an engine can read of it."""
    for _ in clip.iter_frames([0, clip.info.decodable - 1]):
        pass
