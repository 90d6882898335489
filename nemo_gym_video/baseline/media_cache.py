# SPDX-License-Identifier: Apache-2.0
"""Decoded media by content, so that the repeats of one row decode it once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock

from nemo_gym_video.baseline.seen import SeenMedia


class MediaCache:
    """Least-recently-used cache within ``max_bytes`` of pixels; safe for threads.

    Threads that ask for the same key at once share one load. A load that fails is not kept and every one of them
    gets its error.
    """

    def __init__(self, max_bytes: int) -> None:
        """Start empty."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = Lock()
        self._entries: OrderedDict[Hashable, Future[SeenMedia]] = OrderedDict()

    def get(self, key: Hashable, load: Callable[[], SeenMedia]) -> SeenMedia:
        """The media under ``key``; ``load`` makes it when it is not there yet."""
        with self._lock:
            future = self._entries.get(key)
            mine = future is None
            if future is None:
                future = self._entries[key] = Future()
            self._entries.move_to_end(key)
        if mine:
            self._fill(key, future, load)
        return future.result()

    def _fill(self, key: Hashable, future: Future[SeenMedia], load: Callable[[], SeenMedia]) -> None:
        try:
            media = load()
        except BaseException as error:  # noqa: BLE001 - the waiting threads get it, and this one raises it too
            with self._lock:
                del self._entries[key]
            future.set_exception(error)
            return
        future.set_result(media)
        with self._lock:
            self._bytes += media.nbytes
            self._evict()

    def _evict(self) -> None:
        for key in list(self._entries):
            if self._bytes <= self._max_bytes:
                return
            if self._entries[key].done():
                self._bytes -= self._entries.pop(key).result().nbytes
