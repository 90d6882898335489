# SPDX-License-Identifier: Apache-2.0
"""Video for NeMo Gym: tasks, scoring, token counts, and which media belong to which turn of a rollout.

The names below are the public ones: they keep their meaning within a minor version (``CHANGELOG.md``). A name is
loaded when it is first used, so ``import nemo_gym_video`` itself costs nothing. Everything else in the package is
private by convention, whether or not its name begins with an underscore, and may change in any release.

>>> import nemo_gym_video
>>> nemo_gym_video.Score(reward=1.0).reason
'scored'
"""

import importlib
from typing import TYPE_CHECKING

from nemo_gym_video import _moved

if TYPE_CHECKING:
    from nemo_gym_video.alignment.calls import align_calls as align_calls
    from nemo_gym_video.alignment.findings import Alignment as Alignment
    from nemo_gym_video.alignment.findings import Finding as Finding
    from nemo_gym_video.alignment.media_id import MediaRef as MediaRef
    from nemo_gym_video.alignment.occurrences import Occurrence as Occurrence
    from nemo_gym_video.alignment.occurrences import Turn as Turn
    from nemo_gym_video.alignment.occurrences import TurnIndex as TurnIndex
    from nemo_gym_video.alignment.pixels import MediaReader as MediaReader
    from nemo_gym_video.alignment.turns import index_turns as index_turns
    from nemo_gym_video.contract.build import build_contract as build_contract
    from nemo_gym_video.contract.build import contract_of_row as contract_of_row
    from nemo_gym_video.contract.row_contract import RowContract as RowContract
    from nemo_gym_video.errors import MediaDecodeError as MediaDecodeError
    from nemo_gym_video.errors import MediaSourceError as MediaSourceError
    from nemo_gym_video.errors import NemoGymVideoError as NemoGymVideoError
    from nemo_gym_video.errors import RowError as RowError
    from nemo_gym_video.errors import Where as Where
    from nemo_gym_video.media.policy import SourcePolicy as SourcePolicy
    from nemo_gym_video.media.sources import MediaSources as MediaSources
    from nemo_gym_video.messages import FrameManifest as FrameManifest
    from nemo_gym_video.messages import group_media as group_media
    from nemo_gym_video.messages import image_part as image_part
    from nemo_gym_video.messages import iter_media_parts as iter_media_parts
    from nemo_gym_video.messages import text_part as text_part
    from nemo_gym_video.messages import video_part as video_part
    from nemo_gym_video.processors.counts import count_request as count_request
    from nemo_gym_video.processors.presets import load_settings as load_settings
    from nemo_gym_video.processors.regions import CountRequest as CountRequest
    from nemo_gym_video.processors.regions import MediaSize as MediaSize
    from nemo_gym_video.processors.sampling import sample_frames as sample_frames
    from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed as score_boxed
    from nemo_gym_video.tasks.observation import Observation as Observation
    from nemo_gym_video.tasks.task import Answer as Answer
    from nemo_gym_video.tasks.task import Episode as Episode
    from nemo_gym_video.tasks.task import Score as Score
    from nemo_gym_video.tasks.task import Task as Task
    from nemo_gym_video.tasks.task import TaskSettings as TaskSettings
    from nemo_gym_video.tasks.tracking.scoring import score_tracks as score_tracks
    from nemo_gym_video.trainers.nemo_rl import nemo_rl_turns as nemo_rl_turns

__version__ = "0.2.0"

# Each public name and the module that defines it; tests/structure/test_door.py holds this table, the imports for
# type checkers above and __all__ to one another.
_DEFINED_IN = {
    "Alignment": "alignment.findings",
    "Answer": "tasks.task",
    "CountRequest": "processors.regions",
    "Episode": "tasks.task",
    "Finding": "alignment.findings",
    "FrameManifest": "messages",
    "MediaDecodeError": "errors",
    "MediaReader": "alignment.pixels",
    "MediaRef": "alignment.media_id",
    "MediaSize": "processors.regions",
    "MediaSourceError": "errors",
    "MediaSources": "media.sources",
    "NemoGymVideoError": "errors",
    "Observation": "tasks.observation",
    "Occurrence": "alignment.occurrences",
    "RowContract": "contract.row_contract",
    "RowError": "errors",
    "Score": "tasks.task",
    "SourcePolicy": "media.policy",
    "Task": "tasks.task",
    "TaskSettings": "tasks.task",
    "Turn": "alignment.occurrences",
    "TurnIndex": "alignment.occurrences",
    "Where": "errors",
    "align_calls": "alignment.calls",
    "build_contract": "contract.build",
    "contract_of_row": "contract.build",
    "count_request": "processors.counts",
    "group_media": "messages",
    "image_part": "messages",
    "index_turns": "alignment.turns",
    "iter_media_parts": "messages",
    "load_settings": "processors.presets",
    "nemo_rl_turns": "trainers.nemo_rl",
    "sample_frames": "processors.sampling",
    "score_boxed": "tasks.boxed.boxed_answer",
    "score_tracks": "tasks.tracking.scoring",
    "text_part": "messages",
    "video_part": "messages",
}

__all__ = [
    "Alignment",
    "Answer",
    "CountRequest",
    "Episode",
    "Finding",
    "FrameManifest",
    "MediaDecodeError",
    "MediaReader",
    "MediaRef",
    "MediaSize",
    "MediaSourceError",
    "MediaSources",
    "NemoGymVideoError",
    "Observation",
    "Occurrence",
    "RowContract",
    "RowError",
    "Score",
    "SourcePolicy",
    "Task",
    "TaskSettings",
    "Turn",
    "TurnIndex",
    "Where",
    "align_calls",
    "build_contract",
    "contract_of_row",
    "count_request",
    "group_media",
    "image_part",
    "index_turns",
    "iter_media_parts",
    "load_settings",
    "nemo_rl_turns",
    "sample_frames",
    "score_boxed",
    "score_tracks",
    "text_part",
    "video_part",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used."""
        module = _DEFINED_IN.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


_moved.install()
