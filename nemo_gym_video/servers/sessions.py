# SPDX-License-Identifier: Apache-2.0
"""Sessions of a multi-turn environment: opened by seed, found by cookie, closed or expired on every path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Entry[State]:
    state: State
    last_used: float


class SessionStore[State]:
    """Open sessions by id. ``release`` frees what a state holds and is called exactly once for each.

    Thread-safe; ``idle_seconds`` is the longest silence a session survives, ``limit`` the most that may be open.
    """

    def __init__(
        self,
        *,
        release: Callable[[State], None],
        idle_seconds: float = 900.0,
        limit: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make an empty store."""
        self._release = release
        self._idle = idle_seconds
        self._limit = limit
        self._clock = clock
        self._open: dict[str, _Entry[State]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._open)

    def open(self, session_id: str, state: State) -> bool:
        """Register ``state``; an earlier session of the same id is released. False (and released) when full."""
        self.expire()
        with self._lock:
            previous = self._open.pop(session_id, None)
            full = len(self._open) >= self._limit
            if not full:
                self._open[session_id] = _Entry(state, self._clock())
        if previous is not None:
            self._release(previous.state)
        if full:
            self._release(state)
        return not full

    def get(self, session_id: str) -> State | None:
        """The open session's state, touched; None when it was closed, expired, or never opened."""
        self.expire()
        with self._lock:
            entry = self._open.get(session_id)
            if entry is None:
                return None
            entry.last_used = self._clock()
            return entry.state

    def close(self, session_id: str) -> bool:
        """Release one session; False when there is none. Safe to repeat."""
        with self._lock:
            entry = self._open.pop(session_id, None)
        if entry is None:
            return False
        self._release(entry.state)
        return True

    def expire(self) -> int:
        """Release every session idle for too long and return how many."""
        oldest = self._clock() - self._idle
        with self._lock:
            stale = [key for key, entry in self._open.items() if entry.last_used < oldest]
            entries = [self._open.pop(key) for key in stale]
        for entry in entries:
            self._release(entry.state)
        return len(entries)

    def close_all(self) -> int:
        """Release every session (a server that stops) and return how many."""
        with self._lock:
            entries = list(self._open.values())
            self._open.clear()
        for entry in entries:
            self._release(entry.state)
        return len(entries)
