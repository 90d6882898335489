# SPDX-License-Identifier: Apache-2.0
"""The routes of a verifier whose task has episodes: one session by cookie for each rollout.

Every answer to a request that cannot be met (no session, a malformed row) is an HTTP error with one sentence; the
agent turns it into a masked sample. Work on media happens on the scoring threads, never on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.server_utils import SESSION_ID_KEY

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.servers.sessions import SessionStore
from nemo_gym_video.tasks.episode_media import EpisodeMedia
from nemo_gym_video.tasks.observation import Observation
from nemo_gym_video.tasks.registry import AnyTask, TaskError
from nemo_gym_video.tasks.task import Answer, Episode

_SWEEPS = 10


class RunInPool(Protocol):
    """Does work on a thread and gives its result."""

    def __call__[Result](self, work: Callable[[], Result]) -> Awaitable[Result]:
        """Await the result of ``work``."""
        ...


@dataclass(slots=True)
class Session:
    """An episode, and the last turn that was answered, so that a repeated request is not another turn."""

    episode: Episode
    turn: object = None
    answer: dict[str, Any] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class EpisodeRoutes:
    """``/seed_session``, ``/step``, ``/close_session`` and ``/sessions`` of one task."""

    def __init__(
        self, task: AnyTask, media: EpisodeMedia, *, in_pool: RunInPool, idle_seconds: float, limit: int
    ) -> None:
        """``idle_seconds`` is the longest silence that a session survives, ``limit`` the most open at a time."""
        self.sessions: SessionStore[Session] = SessionStore(
            release=lambda session: session.episode.close(), idle_seconds=idle_seconds, limit=limit
        )
        self._task = task
        self._media = media
        self._in_pool = in_pool
        self._idle_seconds = idle_seconds
        self._limit = limit

    def state(self, request: Request) -> Mapping[str, Any] | None:
        """What was kept of this cookie's episode; None where no session is open."""
        session = self.sessions.get(request.session[SESSION_ID_KEY])
        return None if session is None else session.episode.state

    @contextlib.asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Release idle sessions while the server runs, and all of them when it stops."""
        sweeper = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeper.cancel()
            self.sessions.close_all()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_seconds / _SWEEPS)
            self.sessions.expire()

    def _begin(self, row: Mapping[str, Any]) -> tuple[Episode, Observation]:
        episode = self._task.episode(self._task.read_row(row), self._media)
        if episode is None:
            raise TaskError("task has no episode for this row", got=self._task.name)
        return episode, episode.begin()

    async def seed_session(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Open this cookie's session for a row and answer with its first observation."""
        try:
            episode, observation = await self._in_pool(lambda: self._begin(body))
        except NemoGymVideoError as error:
            raise HTTPException(422, str(error)) from error
        if not self.sessions.open(request.session[SESSION_ID_KEY], Session(episode)):
            raise HTTPException(503, f"all {self._limit} sessions are open; lower the concurrency")
        return observation.to_json()

    async def step(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Answer one model turn: ``{"output": [item, …], "turn": n}`` in, observation out.

        ``turn`` may be left out. One that repeats the last is a retry of a request whose answer was lost, and gets
        that answer again.
        """
        output, turn = body.get("output"), body.get("turn")
        if not isinstance(output, list):
            raise HTTPException(422, "step needs a list of output items")
        session = self.sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            raise HTTPException(404, "no open session: it was closed, expired, or never seeded")
        async with session.lock:
            if turn is None or session.answer is None or turn != session.turn:
                try:
                    observation = await self._in_pool(lambda: session.episode.step(Answer(output)))
                except NemoGymVideoError as error:
                    raise HTTPException(422, str(error)) from error
                session.turn, session.answer = turn, observation.to_json()
            return session.answer

    async def close_session(self, request: Request, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Close this cookie's session; closing what is closed is fine."""
        del body
        return {"closed": self.sessions.close(request.session[SESSION_ID_KEY])}

    async def count_sessions(self) -> dict[str, int]:
        """How many sessions are open, for people and tests that look for leaks."""
        return {"open": len(self.sessions)}

    def add_to(self, app: FastAPI) -> None:
        """Put the routes in, in place of Gym's of the same paths."""
        ours = {"/seed_session": self.seed_session, "/step": self.step, "/close_session": self.close_session}
        app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) not in ours]
        for path, handler in ours.items():
            app.post(path)(handler)
        app.get("/sessions")(self.count_sessions)
