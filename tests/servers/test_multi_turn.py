# SPDX-License-Identifier: Apache-2.0
"""Both multi-turn environments through real servers and the embedded baseline: every turn has its own media.

What each turn should hold is worked out here from the media parts of the rollout alone: frames and sizes read with
PyAV and Pillow, counted by the processor's rules, compared with the stretches of the media id in the prompts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import av
import pytest
from PIL import Image

from nemo_gym_video.gym.catalog import load_environment
from nemo_gym_video.gym.inputs import read_inputs
from nemo_gym_video.gym.rollout import BASELINE_CONTEXT, BASELINE_FRAMES
from nemo_gym_video.tokens.counts import count_request
from nemo_gym_video.tokens.sampling import sample_frames
from nemo_gym_video.tokens.settings import load_settings
from nemo_gym_video.tokens.types import CountRequest, MediaSize
from nemo_gym_video.turns import TurnIndex, index_turns

pytestmark = pytest.mark.servers

MEDIA = 18
SETTINGS = load_settings("nemotron_omni")
TRANSPORTS = ("manifest", "clip", "images")
CHUNKS = (3, 6, 40)


def media_runs(ids: Sequence[int]) -> list[int]:
    return [len(list(group)) for is_media, group in groupby(ids, key=lambda one: one == MEDIA) if is_media]


def size_of(part: Mapping[str, Any]) -> MediaSize | None:
    """What the engine sees of a media part; None for text."""
    if part["type"] == "input_text":
        return None
    if part["type"] == "input_image":
        with Image.open(path_of(part["image_url"])) as image:
            return MediaSize("image", *image.size)
    url = part["video_url"]
    if url.startswith("data:"):
        body = json.loads(base64.b64decode(url.partition(",")[2]).partition(b"\n")[2])
        with Image.open(body["frame_paths"][0]) as image:
            return MediaSize("video", *image.size, len(body["frame_paths"]))
    with av.open(path_of(url)) as clip:
        stream = clip.streams.video[0]
        total = sum(1 for _ in clip.decode(stream))
        sample = sample_frames("nemo_rl", total=total, fps=float(stream.average_rate or 1),
                               num_frames=BASELINE_FRAMES, temporal_patch_size=2)  # fmt: skip
        return MediaSize("video", stream.width, stream.height, len(sample.indices))


def path_of(url: str) -> str:
    return unquote(urlsplit(url).path)


def turns_by_hand(rollout: Mapping[str, Any]) -> Iterator[tuple[list[MediaSize], dict[str, Any]]]:
    """For every trained item: the media shown since the one before it, and the item."""
    shown: list[MediaSize] = []
    for item in [*rollout["response"]["seed_obs"], *rollout["response"]["output"]]:
        content = item.get("content") or []
        if item.get("role") == "user" and isinstance(content, list):
            shown += [size for part in content if (size := size_of(part)) is not None]
        if item.get("generation_token_ids"):
            yield shown, item
            shown = []
    assert shown == []


def check(rollout: Mapping[str, Any]) -> TurnIndex:
    """Hold a rollout's index to what the turns hold by hand; returns the index."""
    index = index_turns(rollout)
    assert index.findings == ()
    assert index.unclaimed == ()
    assert rollout["media_findings"] == []
    assert not rollout["mask_sample"]
    by_hand = list(turns_by_hand(rollout))
    assert len(by_hand) == len(index.turns) == len(rollout["model_call_metadata"])
    so_far: list[MediaSize] = []
    seen_runs = 0
    for turn, (new, item) in zip(index.turns, by_hand, strict=True):
        count = count_request(SETTINGS, CountRequest(items=(*so_far, *new), max_model_len=BASELINE_CONTEXT))
        expected = [list(one.run_lengths) for one in count.items[len(so_far) :]]
        prompt = item["prompt_token_ids"]
        runs = media_runs(prompt)
        assert runs[seen_runs:] == [length for lengths in expected for length in lengths]
        assert [media.kind for media in turn.media] == [size.kind for size in new]
        for media, lengths in zip(turn.media, expected, strict=True):
            assert list(media.run_lengths) == lengths == [end - start for start, end in media.spans]
            for start, end in media.spans:
                assert set(prompt[start:end]) == {MEDIA}
                assert MEDIA not in (prompt[start - 1], prompt[end])
        so_far += new
        seen_runs = len(runs)
    return index


@pytest.fixture(scope="module")
def inputs() -> Any:
    """Example rows of both environments: clips in every form, chunks of several sizes."""
    environments = [load_environment(name) for name in ("clip_explorer", "sav_stream")]
    examples = [example for one in environments for example in one.examples]
    read = read_inputs(examples, {agent.name for one in environments for agent in one.agents})
    changed = []
    for item in read.rows:
        changes: list[dict[str, Any]]
        if item.agent == "clip_explorer_agent":
            changes = [{"explorer": {"transport": transport}} for transport in TRANSPORTS]
        else:
            changes = [{"stream": {**item.row["stream"], "chunk": chunk}} for chunk in CHUNKS]
        changed += [replace(item, row={**item.row, **change}) for change in changes]
    return replace(read, rows=changed)


def test_every_turn_holds_what_it_was_shown(mixed: Any, inputs: Any, tmp_path: Path) -> None:
    rollouts = mixed.rollouts(tmp_path / "out", inputs=inputs, concurrency=8)
    assert len(rollouts) == 30
    turns: dict[str, list[int]] = {}
    for rollout in rollouts:
        index = check(rollout)
        turns.setdefault(rollout["agent_ref"]["name"], []).append(len(index.turns))
    # The baseline asks for at least one clip, and tracks across chunks.
    assert min(turns["clip_explorer_agent"]) >= 2
    assert Counter(turns["sav_stream_agent"])[1] == 5
    assert max(turns["sav_stream_agent"]) >= 6
    for name, floor in (("clip_explorer_agent", 0.7), ("sav_stream_agent", 0.8)):
        rewards = [rollout["reward"] for rollout in rollouts if rollout["agent_ref"]["name"] == name]
        assert sum(rewards) / len(rewards) >= floor


@pytest.mark.slow
def test_two_hundred_rollouts_at_once(mixed: Any, inputs: Any, tmp_path: Path) -> None:
    rollouts = mixed.rollouts(tmp_path / "out", inputs=inputs, concurrency=32, num_repeats=7,
                              request={"temperature": 1.0})  # fmt: skip
    assert len(rollouts) == 210
    for rollout in rollouts:
        check(rollout)
    for name in ("clip_explorer", "sav_stream"):
        assert asyncio.run(open_sessions(mixed.servers.urls[name])) == 0


async def open_sessions(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/sessions") as answer:
        return int((await answer.json())["open"])


def test_clients_that_hang_up_leave_no_session(mixed: Any, inputs: Any) -> None:
    """Gym's server cancels an abandoned /run, and the agent closes what it opened; nothing goes idle."""
    urls = mixed.servers.urls
    rng = random.Random(7)

    async def abandon(http: aiohttp.ClientSession, item: Any) -> None:
        timeout = aiohttp.ClientTimeout(total=0.05 + 1.5 * rng.random())
        try:
            async with http.post(f"{urls[item.agent]}/run", json=item.row, timeout=timeout) as answer:
                await answer.read()
        except TimeoutError:
            pass

    async def crowd() -> tuple[int, int]:
        async with aiohttp.ClientSession() as http:
            rush = asyncio.gather(*(abandon(http, item) for item in inputs.rows * 3))
            most = 0
            while not rush.done():
                most = max(most, await open_sessions(urls["clip_explorer"]))
                await asyncio.sleep(0.02)
            await rush
        deadline = time.monotonic() + 20
        while (left := sum([await open_sessions(urls[name]) for name in ("clip_explorer", "sav_stream")])) > 0:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        return most, left

    most, left = asyncio.run(crowd())
    assert most > 0
    assert left == 0
