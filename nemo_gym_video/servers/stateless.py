# SPDX-License-Identifier: Apache-2.0
"""Verifier servers that need nothing but the row and the answer: worker processes score, the loop moves bytes."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException, Request, Response
from nemo_gym.telemetry.endpoints import traced_verify_endpoint
from pydantic import Field, PrivateAttr

from nemo_gym_video.servers.scorers import SCORERS
from nemo_gym_video.servers.scoring_workers import RequestRefused, ScoringWorkers, WorkerFailed
from nemo_gym_video.servers.verifier import (
    ComponentsResponse,
    ScoringConfig,
    ScoringRequest,
    ScoringResponse,
    ScoringServer,
)

_PATH = "/verify"


class StatelessConfig(ScoringConfig):
    """Configuration of a server that scores in worker processes."""

    scoring_processes: int = Field(
        default_factory=lambda: min(4, os.cpu_count() or 1),
        gt=0,
        description="Most processes that score. They are started when they are needed.",
    )


class StatelessServer(ScoringServer):
    """A subclass names its scorer and its settings."""

    config: StatelessConfig
    scorer: ClassVar[str]
    _workers: ScoringWorkers = PrivateAttr()

    def settings(self) -> Mapping[str, Any]:
        """What the scorer is told, as JSON values."""
        raise NotImplementedError

    def setup_session_middleware(self, app: FastAPI) -> None:
        """No session and no cookie: there is nothing to remember, and the middleware costs more than the rest."""

    def setup_webserver(self) -> FastAPI:
        """Gym's routes, with ``/verify`` answered by the workers."""
        app: FastAPI = super().setup_webserver()
        self._workers = ScoringWorkers(self.scorer, self.settings(), limit=self.config.scoring_processes)
        app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) != _PATH]
        attributes = {"nemo.gym.server.name": self.config.name}
        app.post(_PATH)(traced_verify_endpoint(self.verify_bytes, static_attributes=attributes))
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(application: FastAPI) -> AsyncIterator[Any]:
            async with inner(application) as state:
                await self._workers.warm_up()
                # What the imports left lives as long as the server; a full collection over it stops the loop for
                # a fifth of a second.
                gc.collect()
                gc.freeze()
                yield state
            await self._workers.close()

        app.router.lifespan_context = lifespan
        return app

    async def verify_bytes(self, request: Request) -> Response:
        """Score one body, which is not parsed in this process: it may hold megabytes of token ids and masks."""
        try:
            answer = await self._workers.score(await request.body())
        except RequestRefused as error:
            raise HTTPException(422, str(error)) from error
        except WorkerFailed as error:
            raise HTTPException(500, str(error)) from error
        return Response(answer, media_type="application/json")

    async def verify(self, body: ScoringRequest) -> ScoringResponse:
        """The same score for a parsed request, in this process: for fixtures and for callers without HTTP."""
        scores = await self.in_pool(lambda: SCORERS[self.scorer](body.row(), body.answer(), self.settings()))
        response = ComponentsResponse if "reward_components" in scores else ScoringResponse
        return response(**{**body.model_dump(), **scores})
