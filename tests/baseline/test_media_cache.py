# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from nemo_gym_video.baseline.media_cache import MediaCache
from nemo_gym_video.baseline.seen import SeenMedia
from nemo_gym_video.errors import MediaDecodeError


def media(nbytes: int) -> SeenMedia:
    frame = np.zeros((1, nbytes // 3, 3), np.uint8)
    return SeenMedia(kind="image", frames=(frame,), size=(nbytes // 3, 1))


def test_threads_that_ask_together_share_one_load() -> None:
    cache, loads, together = MediaCache(1000), [], threading.Barrier(4)

    def load() -> SeenMedia:
        loads.append(1)
        return media(300)

    def ask() -> SeenMedia:
        together.wait()
        return cache.get("key", load)

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(ask) for _ in range(4)]]
    assert len(loads) == 1
    assert all(item is found[0] for item in found)


def test_the_least_recently_used_goes_first() -> None:
    cache = MediaCache(700)
    loads: list[str] = []

    def load(key: str) -> SeenMedia:
        loads.append(key)
        return media(300)

    for key in ("a", "b", "a", "c", "a", "b"):
        cache.get(key, partial(load, key))
    assert loads == ["a", "b", "c", "b"]


def test_what_is_larger_than_the_cache_is_served_but_not_kept() -> None:
    cache = MediaCache(100)
    first = cache.get("key", lambda: media(300))
    assert cache.get("key", lambda: media(300)) is not first


def test_a_load_that_fails_is_not_kept() -> None:
    cache = MediaCache(1000)

    def fail() -> SeenMedia:
        raise MediaDecodeError("broken")

    with pytest.raises(MediaDecodeError):
        cache.get("key", fail)
    assert cache.get("key", lambda: media(300)).nbytes == 300
