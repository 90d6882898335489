# SPDX-License-Identifier: Apache-2.0
"""Indexing looks at references, never into them: no file opened, no picture copied or hashed."""

from __future__ import annotations

import builtins
import hashlib
import os
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.alignment.runs import find_runs, list_runs, shared_prefix


def rollout_of(size: int) -> dict[str, Any]:
    """Four turns, each with two data URLs of ``size`` characters, a path and a video."""
    output: list[dict[str, Any]] = []
    tokens: list[int] = []
    for turn in range(4):
        parts = [
            {"type": "input_image", "image_url": "data:image/png;base64," + chr(65 + n) * size} for n in range(2)
        ]
        parts.append({"type": "input_image", "image_url": f"/nowhere/{turn}.png"})
        parts.append({"type": "input_video", "video_url": f"https://example.com/{turn}.mp4"})
        output.append({"type": "message", "role": "user", "content": parts})
        tokens = [*tokens, 1, 9, 9, 2, 9, 2, 9, 9, 9, 2, 9, 2]
        output.append({"type": "message", "role": "assistant", "prompt_token_ids": tokens,
                       "generation_token_ids": [7]})  # fmt: skip
        tokens = [*tokens, 7]
    return {"response": {"output": output}}


def test_peak_memory_does_not_grow_with_the_media() -> None:
    peaks = []
    for size in (1_000, 4_000_000):
        rollout = rollout_of(size)
        index_turns(rollout, media_token_ids=[9])
        tracemalloc.start()
        index = index_turns(rollout, media_token_ids=[9])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert not index.findings
    assert peaks[1] < peaks[0] + 20_000


def test_nothing_is_opened_or_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = rollout_of(1_000)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("indexing opened or hashed something")

    index_turns(rollout, media_token_ids=[9])
    with monkeypatch.context() as patch:
        for module, name in ((builtins, "open"), (os, "open"), (os, "stat"), (hashlib, "sha256")):
            patch.setattr(module, name, refuse)
        index = index_turns(rollout, media_token_ids=[9])
    assert [len(turn.media) for turn in index.turns] == [4] * 4
    # The strings are the rollout's own, not copies.
    first = index.turns[0].media[0].ref.urls[0]
    assert first is rollout["response"]["output"][0]["content"][0]["image_url"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 8, 9]), max_size=60), st.sampled_from([[9], [8, 9], [9, 8, 9], [7]]))
def test_runs_of_a_list_are_those_of_an_array(tokens: list[int], ids: list[int]) -> None:
    for start in (0, len(tokens) // 2):
        assert list_runs(tokens[start:], ids, shift=start) == find_runs(tokens, ids, start=start)


def test_long_runs_end_where_they_end() -> None:
    rng = random.Random(5)
    for _ in range(50):
        tokens: list[int] = []
        spans = []
        for _ in range(rng.randint(1, 6)):
            tokens.append(1)
            length = rng.choice([1, 2, 3, 255, 256, 257, rng.randint(1, 5000)])
            spans.append((len(tokens), len(tokens) + length))
            tokens += [9] * length
        if rng.random() < 0.5:
            tokens.append(1)
        assert [(run.start, run.end) for run in list_runs(tokens, [9])] == spans


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), max_size=40), st.integers(0, 40))
def test_shared_prefix_counts_equal_leading_tokens(left: list[int], right: list[int], common: int) -> None:
    right = left[:common] + right
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    assert shared_prefix(left, right) == count
