# SPDX-License-Identifier: Apache-2.0
"""The one verifier server: scores the answers of the task that its configuration names, and runs its episodes.

Worker processes score, the event loop moves bytes; what an episode does happens on threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from nemo_gym.telemetry.endpoints import traced_verify_endpoint
from pydantic import Field, PrivateAttr

from nemo_gym_video.errors import RowError
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.servers.agent_config import MediaSettings
from nemo_gym_video.servers.episode_routes import EpisodeRoutes
from nemo_gym_video.servers.scorers import result_fields, score_body
from nemo_gym_video.servers.scoring_workers import RequestRefused, ScoringWorkers, WorkerFailed
from nemo_gym_video.servers.verifier import (
    ComponentsResponse,
    ScoringConfig,
    ScoringRequest,
    ScoringResponse,
    ScoringServer,
    TaskRollouts,
    scoring_metrics,
)
from nemo_gym_video.tasks.episode_media import EpisodeMedia
from nemo_gym_video.tasks.registry import AnyTask, load_task, task_of_row

_PATH = "/verify"


class VerifierConfig(MediaSettings, ScoringConfig):
    """What a verifier server is told. Media settings matter to tasks with episodes."""

    task: str = Field(
        description="A registered task's name, module:attribute, or path/task.py:Class. A relative path is taken "
        "from the environment's folder, or from Gym's search folders where there is no `environment`."
    )
    task_settings: dict[str, Any] = Field(default_factory=dict, description="Fields of the task's Settings.")
    scoring_processes: int = Field(
        default_factory=lambda: min(4, os.cpu_count() or 1),
        gt=0,
        description="Processes that score.",
    )
    session_idle_seconds: float = Field(default=900, gt=0, description="Longest silence that a session survives.")
    max_sessions: int = Field(default=10_000, gt=0, description="Most sessions open at a time.")

    def task_reference(self) -> str:
        """``task`` with a file by its absolute path: a relative one is taken from the environment's folder."""
        place, _, _ = self.task.partition(":")
        folder = self.folder() if place.endswith(".py") else None
        return self.task if folder is None else str(folder / self.task)


class TaskVerifier(ScoringServer):
    """Serves one task."""

    config: VerifierConfig
    _task: AnyTask = PrivateAttr()
    _workers: ScoringWorkers | None = PrivateAttr(default=None)
    _routes: EpisodeRoutes | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        """Load the task: a server whose task cannot be loaded does not start."""
        super().model_post_init(context)
        self._task = load_task(self.config.task_reference(), self.config.task_settings)
        if self._task.multi_turn():
            self._routes = EpisodeRoutes(
                self._task,
                self._episode_media(),
                in_pool=self.in_pool,
                idle_seconds=self.config.session_idle_seconds,
                limit=self.config.max_sessions,
            )

    def _episode_media(self) -> EpisodeMedia:
        policy = self.config.source_policy()
        return EpisodeMedia(
            store=ContentStore(self.config.store()),
            sources=MediaSources(policy),
            limits=policy.limits,
            decoder=BoundedDecoder(workers=self.config.scoring_threads),
        )

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Cookies where there are episodes. A single turn has nothing to remember, and they cost more than it."""
        if self._routes is not None:
            super().setup_session_middleware(app)

    def setup_webserver(self) -> FastAPI:
        """Gym's routes, with ``/verify`` answered by the workers, and the routes of episodes."""
        app: FastAPI = super().setup_webserver()
        app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) != _PATH]
        attributes = {"nemo.gym.server.name": self.config.name}
        app.post(_PATH)(traced_verify_endpoint(self.verify_bytes, static_attributes=attributes))
        if self._routes is not None:
            self._routes.add_to(app)
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(application: FastAPI) -> AsyncIterator[Any]:
            sweeping = contextlib.nullcontext() if self._routes is None else self._routes.swept()
            async with inner(application) as state, sweeping, self._scoring():
                yield state

        app.router.lifespan_context = lifespan
        return app

    @contextlib.asynccontextmanager
    async def _scoring(self) -> AsyncIterator[None]:
        """The workers, while the server runs."""
        config = self.config
        workers = ScoringWorkers(config.task_reference(), config.task_settings, limit=config.scoring_processes)
        try:
            await workers.warm_up()
            # What the imports left lives as long as the server; a full collection over it stops the loop for a
            # fifth of a second.
            gc.collect()
            gc.freeze()
            self._workers = workers
            yield
        finally:
            self._workers = None
            await workers.close()

    async def verify_bytes(self, request: Request) -> Response:
        """Score one body, which is not parsed in this process: it may hold megabytes of token ids and masks."""
        body = await request.body()
        episode = None if self._routes is None else self._routes.state(request)
        try:
            if self._workers is not None:
                answer = await self._workers.score(body, episode)
            else:  # an app that was made but not started: tests and tools in one process
                answer = await self.in_pool(lambda: score_body(body, self._task, episode))
        except (RequestRefused, RowError) as error:
            raise HTTPException(422, str(error)) from error
        except WorkerFailed as error:
            raise HTTPException(500, str(error)) from error
        return Response(answer, media_type="application/json")

    async def verify(self, body: ScoringRequest) -> ScoringResponse:
        """The same score for a parsed request, in this process: for fixtures and for callers without HTTP."""
        scores = await self.in_pool(lambda: result_fields(self._task, body.row(), body.answer()))
        response = ComponentsResponse if "reward_components" in scores else ScoringResponse
        return response(**{**body.model_dump(), **scores})

    def compute_metrics(self, tasks: list[TaskRollouts]) -> dict[str, Any]:
        """pass@k (and majority@k where answers compare), reasons by count, means of the task's numbers."""
        task = self._task
        return scoring_metrics(tasks, answer_key=task.answer_key, subset_key=task.subset_key, means=task.means)

    def mean_names(self) -> tuple[str, ...]:
        """The task's numbers."""
        return self._task.means


async def verify_by_its_task(serve: Callable[..., TaskVerifier], request: ScoringRequest) -> ScoringResponse:
    """Score a fixture's case with a server of the task that its row belongs to."""
    return await serve(task=task_of_row(request.row()).name).verify(request)
