# SPDX-License-Identifier: Apache-2.0
"""Gym resources server for questions about a clip shown on request: ``nemo_gym_video.tasks.clip_explorer``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from nemo_gym.verifier_fixture import VerifierFixture
from pydantic import Field, PrivateAttr

from nemo_gym_video.errors import RowError
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.servers.agent_config import MediaSettings
from nemo_gym_video.servers.stepping import SteppedEpisode, SteppingConfig, SteppingServer
from nemo_gym_video.servers.verifier import ComponentsResponse, ScoringRequest, nothing_to_seed, offline
from nemo_gym_video.tasks.clip_explorer.clip import ClipFootage, StoreWriter
from nemo_gym_video.tasks.clip_explorer.explorer import (
    ExplorerCosts,
    ExplorerEpisode,
    ExplorerLimits,
    score_exploration,
)
from nemo_gym_video.tasks.observation import Observation


class ClipExplorerConfig(MediaSettings, SteppingConfig):
    """Where clips are read and shown frames are written, what an episode may use, and what that costs."""

    max_turns: int = Field(default=8, gt=0, description="Model turns of an episode, the final answer included.")
    max_frames: int = Field(default=32, gt=0, description="Frames in one answer.")
    overview_frames: int = Field(default=8, gt=0, description="Frames of the first observation.")
    transport: Literal["manifest", "clip", "images"] = Field(
        default="manifest", description="How clips are sent: cached frames, a cut H.264 clip, or single images."
    )
    turn_cost: float = Field(default=0.0, ge=0, description="Reward that each request takes off a right answer.")
    frame_cost: float = Field(default=0.0, ge=0, description="Reward that each frame shown takes off.")
    grading_mode: Literal["strict_single_letter_boxed", "lenient_boxed"] = "strict_single_letter_boxed"


class ClipExplorerServer(SteppingServer):
    """Shows parts of a clip on request and scores the boxed answer."""

    config: ClipExplorerConfig
    answer_key = "extracted_answer"
    _sources: MediaSources = PrivateAttr()
    _writer: StoreWriter = PrivateAttr()
    _decoder: BoundedDecoder = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Resolve the media roots and the store."""
        super().model_post_init(context)
        self._sources = MediaSources(self.config.source_policy())
        self._writer = StoreWriter(ContentStore(self.config.store()))
        self._decoder = BoundedDecoder(workers=self.config.scoring_threads)

    def begin(self, row: Mapping[str, Any]) -> tuple[SteppedEpisode, Observation]:
        """Open the row's clip and show the overview."""
        video = row.get("video")
        if not isinstance(video, str):
            raise RowError("row names no video", got=video)
        given = row.get("explorer")
        if given is not None and not isinstance(given, Mapping):
            raise RowError("explorer is no object", got=given)
        names = ("max_turns", "max_frames", "overview_frames", "transport")
        limits = ExplorerLimits.from_json({name: getattr(self.config, name) for name in names} | dict(given or {}))
        policy = self.config.source_policy()
        footage = ClipFootage.open(self._sources, video, limits=policy.limits, decoder=self._decoder)
        episode = ExplorerEpisode(footage, self._writer, limits)
        return episode, episode.overview()

    async def verify(self, body: ScoringRequest) -> ComponentsResponse:
        """The last turn's boxed answer, less the cost of what was shown."""
        row, answer = body.row(), body.answer()
        usage = row.get("episode")
        costs = ExplorerCosts(turn=self.config.turn_cost, frame=self.config.frame_cost)
        scores = await self.in_pool(
            lambda: score_exploration(
                answer,
                row,
                usage=usage if isinstance(usage, Mapping) else {},
                costs=costs,
                grading_mode=self.config.grading_mode,
            )
        )
        return ComponentsResponse(**{**body.model_dump(), **scores})


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: offline(ClipExplorerServer, ClipExplorerConfig),
    request_model=ScoringRequest,
    reseed=nothing_to_seed,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    ClipExplorerServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = ClipExplorerServer.run_webserver()
