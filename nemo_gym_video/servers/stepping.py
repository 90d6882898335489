# SPDX-License-Identifier: Apache-2.0
"""What the multi-turn verifier servers share: sessions by cookie, and the routes around them.

Every answer to a request that cannot be met (no session, a malformed row) is an HTTP error with one sentence; the
agent turns it into a masked sample. Work on media happens on the scoring threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import Field, PrivateAttr

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.servers.sessions import SessionStore
from nemo_gym_video.servers.verifier import ScoringConfig, ScoringServer
from nemo_gym_video.tasks.observation import Observation

_SWEEPS = 10


class SteppedEpisode(Protocol):
    """An episode's state on the environment's side."""

    def step(self, output: Sequence[Any]) -> Observation:
        """Answer one model turn's output items."""
        ...


@dataclass(slots=True)
class _Session:
    """An episode, and the last turn that was answered, so that a repeated request is not another turn."""

    episode: SteppedEpisode
    turn: object = None
    answer: dict[str, Any] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SteppingConfig(ScoringConfig):
    """Configuration of a multi-turn verifier server."""

    session_idle_seconds: float = Field(default=900, gt=0, description="Longest silence that a session survives.")
    max_sessions: int = Field(default=10_000, gt=0, description="Most sessions open at a time.")


class SteppingServer(ScoringServer):
    """Keeps one episode a session; a subclass says how it begins and how it is scored."""

    config: SteppingConfig
    _sessions: SessionStore[_Session] = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Make the session store."""
        super().model_post_init(context)
        self._sessions = SessionStore(
            release=lambda session: self.release(session.episode),
            idle_seconds=self.config.session_idle_seconds,
            limit=self.config.max_sessions,
        )

    def begin(self, row: Mapping[str, Any]) -> tuple[SteppedEpisode, Observation]:
        """Open an episode for a row and say the first thing. Raises ``NemoGymVideoError`` for a bad row."""
        raise NotImplementedError

    def release(self, episode: SteppedEpisode) -> None:
        """Free what an episode holds."""

    def setup_webserver(self) -> FastAPI:
        """Gym's routes, plus ``/step`` and a count of open sessions; expired sessions are swept while it runs."""
        app: FastAPI = super().setup_webserver()
        app.post("/step")(self.step)
        app.get("/sessions")(self.count_sessions)
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(application: FastAPI) -> AsyncIterator[Any]:
            sweeper = asyncio.create_task(self._sweep())
            try:
                async with inner(application) as state:
                    yield state
            finally:
                sweeper.cancel()
                self._sessions.close_all()

        app.router.lifespan_context = lifespan
        return app

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.config.session_idle_seconds / _SWEEPS)
            self._sessions.expire()

    async def seed_session(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Open this cookie's session for a row and answer with its first observation."""
        try:
            episode, observation = await self.in_pool(lambda: self.begin(body))
        except NemoGymVideoError as error:
            raise HTTPException(422, str(error)) from error
        if not self._sessions.open(request.session[SESSION_ID_KEY], _Session(episode)):
            raise HTTPException(503, f"all {self.config.max_sessions} sessions are open; lower the concurrency")
        return observation.to_json()

    async def step(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one model turn: ``{"output": [item, …], "turn": n}`` in, observation out.

        ``turn`` may be left out. One that repeats the last is a retry of a request whose answer was lost, and gets
        that answer again.
        """
        output, turn = body.get("output"), body.get("turn")
        if not isinstance(output, list):
            raise HTTPException(422, "step needs a list of output items")
        session = self._sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            raise HTTPException(404, "no open session: it was closed, expired, or never seeded")
        async with session.lock:
            if turn is None or session.answer is None or turn != session.turn:
                try:
                    observation = await self.in_pool(lambda: session.episode.step(output))
                except NemoGymVideoError as error:
                    raise HTTPException(422, str(error)) from error
                session.turn, session.answer = turn, observation.to_json()
            return session.answer

    async def close_resources_session(
        self, request: Request, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Close this cookie's session; closing what is closed is fine."""
        del body
        return {"closed": self._sessions.close(request.session[SESSION_ID_KEY])}

    async def count_sessions(self) -> dict[str, int]:
        """How many sessions are open, for people and tests that look for leaks."""
        return {"open": len(self._sessions)}
