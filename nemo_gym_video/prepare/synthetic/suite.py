# SPDX-License-Identifier: Apache-2.0
"""The whole synthetic suite: native files once, then one preparation for each environment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource
from nemo_gym_video.prepare.row_parts import Transport
from nemo_gym_video.prepare.sav.sav_rows import TrackRules
from nemo_gym_video.prepare.sav.sav_source import SavSource
from nemo_gym_video.prepare.synthetic.clips import SYNTHETIC, synthesize
from nemo_gym_video.prepare.whole_files import dump_line, remove_leftovers, write_text
from nemo_gym_video.tasks.tracking.schema import Task

_MARK = "synthetic.json"
TASKS: tuple[Task, ...] = ("pt", "box", "ref")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSettings:
    """What to render and how rows carry it; see ``synthesize``."""

    scenes: int = 6
    montages: int = 4
    size: tuple[int, int] = (320, 180)
    seconds: float = 4.5
    real: bool | None = None
    transport: Transport = "video"
    num_frames: int = 24
    hard: bool = False
    seed: int = 0


def render_once(native: Path, suite: SuiteSettings, *, resume: bool) -> None:
    """Render the native files, unless a finished rendering with these settings stands and ``resume`` is set."""
    record = json.loads(json.dumps(asdict(suite)))
    mark = native / _MARK
    if mark.exists():
        if not resume:
            raise PreparationError("output folder already holds clips", code="prepare.output", got=str(native),
                                   allowed="an empty folder, or --resume")  # fmt: skip
        if json.loads(mark.read_text("utf-8")) == record:
            return
        raise PreparationError(
            "clips there were rendered with other settings", code="prepare.output", got=str(native)
        )
    if native.exists():
        remove_leftovers(native)
    synthesize(
        native,
        seed=suite.seed,
        scenes=suite.scenes,
        montages=suite.montages,
        size=suite.size,
        seconds=suite.seconds,
        real=suite.real,
        hard=suite.hard,
    )
    write_text(mark, dump_line(record))


def suite_sources(native: Path, suite: SuiteSettings) -> dict[str, CaprlSource | SavSource]:
    """The preparations of the suite by environment."""
    rules = TrackRules(num_frames=suite.num_frames, max_objects=2)
    return {
        "caprl_mcqa": question_source(native, transport=suite.transport, seed=suite.seed),
        **{f"sav_{task}_tracks": track_source(native, task, rules=rules, seed=suite.seed) for task in TASKS},
    }


def question_source(
    native: Path, *, transport: Transport, seed: int, num_frames: int | None = None
) -> CaprlSource:
    """The questions about the clips in ``native``, with the videos copied into the output."""
    return CaprlSource(
        input=native / "caprl.jsonl",
        video_roots=(native,),
        transport=transport,
        num_frames=num_frames,
        copy_videos=True,
        seed=seed,
        dataset=SYNTHETIC,
    )


def track_source(native: Path, task: Task, *, rules: TrackRules, seed: int, rows_per_video: int = 1) -> SavSource:
    """The tracking clips in ``native``."""
    return SavSource(
        root=native / "sav_train",
        task=task,
        expressions=native / "expressions.json" if task == "ref" else None,
        rules=rules,
        rows_per_video=rows_per_video,
        seed=seed,
        dataset=SYNTHETIC,
    )
