# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from nemo_gym_video.servers.sessions import SessionStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_until_it_is_closed() -> None:
    released: list[str] = []
    store: SessionStore[str] = SessionStore(release=released.append)
    assert store.open("a", "state")
    assert store.get("a") == "state"
    assert store.close("a")
    assert released == ["state"]
    assert store.get("a") is None


def test_closing_twice_releases_once() -> None:
    released: list[str] = []
    store: SessionStore[str] = SessionStore(release=released.append)
    store.open("a", "state")
    assert store.close("a")
    assert not store.close("a")
    assert released == ["state"]


def test_idle_sessions_expire_and_used_ones_do_not() -> None:
    released: list[str] = []
    clock = Clock()
    store: SessionStore[str] = SessionStore(release=released.append, idle_seconds=10, clock=clock)
    store.open("idle", "idle")
    store.open("used", "used")
    clock.now = 8.0
    store.get("used")
    clock.now = 12.0
    assert store.expire() == 1
    assert released == ["idle"]
    assert store.get("used") == "used"


def test_a_full_store_refuses_and_releases_the_newcomer() -> None:
    released: list[str] = []
    store: SessionStore[str] = SessionStore(release=released.append, limit=1)
    assert store.open("a", "first")
    assert not store.open("b", "second")
    assert released == ["second"]
    assert store.get("b") is None


def test_seeding_again_replaces_the_state() -> None:
    released: list[str] = []
    store: SessionStore[str] = SessionStore(release=released.append)
    store.open("a", "first")
    store.open("a", "second")
    assert released == ["first"]
    assert store.get("a") == "second"


def test_a_thousand_concurrent_sessions_with_random_aborts_leave_nothing() -> None:
    released: list[int] = []
    clock = Clock()
    store: SessionStore[int] = SessionStore(release=released.append, idle_seconds=1, clock=clock)

    def episode(number: int) -> None:
        rng = random.Random(number)
        store.open(str(number), number)
        for _ in range(rng.randrange(4)):
            store.get(str(number))
        if rng.random() < 0.5:
            store.close(str(number))

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(episode, range(1000)))
    clock.now = 5.0
    store.expire()
    assert len(store) == 0
    assert sorted(released) == list(range(1000))
