# SPDX-License-Identifier: Apache-2.0
"""Both multi-turn environments through real servers and the embedded baseline: every turn has its own media.

What each turn should hold is worked out here from the media parts of the rollout alone: frames and sizes read with
PyAV and Pillow, counted by the processor's rules, compared with the stretches of the media id in the prompts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import av
import pytest
from PIL import Image

from nemo_gym_video.alignment import TurnIndex, index_turns
from nemo_gym_video.launch.catalogue import load_environment
from nemo_gym_video.launch.collection import BASELINE_CONTEXT, BASELINE_FRAMES
from nemo_gym_video.launch.inputs import read_inputs
from nemo_gym_video.processors.counts import count_request
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import CountRequest, MediaSize
from nemo_gym_video.processors.sampling import sample_frames

pytestmark = pytest.mark.servers

MEDIA = 18
SETTINGS = load_settings("nemotron_omni")
TRANSPORTS = ("manifest", "clip", "images")
CHUNKS = (3, 6, 40)
ENVIRONMENTS = ("clip_explorer", "sav_stream")


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
    environments = [load_environment(name) for name in ENVIRONMENTS]
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
    for name in ENVIRONMENTS:
        assert asyncio.run(open_sessions(mixed.servers.urls[name])) == 0


async def open_sessions(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/sessions") as answer:
        return int((await answer.json())["open"])


def descriptors(urls: Sequence[str]) -> dict[str, int]:
    """Open descriptors of every process that holds one of these listening sockets, by process id."""
    ports = {f"{urlsplit(url).port:04X}" for url in urls}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1][-4:] in ports and line[3] == "0A"}
    assert len(sockets) == len(urls)
    found = {}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            links = [os.readlink(link) for link in folder.iterdir()]
            if sockets & {*links}:
                found[folder.parent.name] = len(links)
    return found


async def abandon(http: aiohttp.ClientSession, url: str, row: Any, seconds: float) -> None:
    """Start a rollout and hang up after ``seconds``."""
    with suppress(TimeoutError, aiohttp.ClientError):
        async with http.post(f"{url}/run", json=row, timeout=aiohttp.ClientTimeout(total=seconds)) as answer:
            await answer.read()


async def hang_up(urls: Mapping[str, str], items: Sequence[Any], longest: float) -> int:
    """Abandon a rollout of every item at a random moment; the most sessions that were seen open meanwhile."""
    rng = random.Random(7)
    most = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        moments = [0.05 + longest * rng.random() for _ in items]
        rush = asyncio.gather(*(abandon(http, urls[item.agent], item.row, moment)
                                for item, moment in zip(items, moments, strict=True)))  # fmt: skip
        while not rush.done():
            most = max(most, await open_sessions(urls["clip_explorer"]))
            await asyncio.sleep(0.02)
        await rush
    return most


async def sessions_left(urls: Mapping[str, str], *, patience: float) -> int:
    """Sessions that are still open after ``patience`` seconds; 0 as soon as none is."""
    left = 1
    for _ in range(round(patience / 0.1)):
        left = sum([await open_sessions(urls[name]) for name in ENVIRONMENTS])
        if left == 0:
            break
        await asyncio.sleep(0.1)
    return left


def test_clients_that_hang_up_leave_no_session(mixed: Any, inputs: Any) -> None:
    """Gym's server cancels an abandoned /run, and the agent closes what it opened; nothing goes idle."""
    urls = mixed.servers.urls
    assert max([asyncio.run(hang_up(urls, inputs.rows * 2, longest)) for longest in (2.0, 8.0)]) > 0
    assert asyncio.run(sessions_left(urls, patience=20)) == 0


@pytest.mark.slow
def test_a_thousand_clients_that_hang_up_leave_nothing(mixed: Any, inputs: Any) -> None:
    urls = mixed.servers.urls
    servers = [urls[name] for name in (*ENVIRONMENTS, *(f"{name}_agent" for name in ENVIRONMENTS))]
    asyncio.run(hang_up(urls, inputs.rows, 5.0))
    assert asyncio.run(sessions_left(urls, patience=60)) == 0
    time.sleep(20)  # connections are kept alive for a while
    before = descriptors(servers)
    items = (inputs.rows * 34)[:1000]
    assert asyncio.run(hang_up(urls, items, 20.0)) > 0
    assert asyncio.run(sessions_left(urls, patience=120)) == 0
    deadline = time.monotonic() + 60
    while sum((after := descriptors(servers)).values()) > sum(before.values()) and time.monotonic() < deadline:
        time.sleep(1)
    assert after.keys() == before.keys()
    assert sum(after.values()) <= sum(before.values())
    store = mixed.plan.output / "media"
    assert {path.suffix for path in store.rglob("*") if path.is_file()} <= {".png", ".mp4", ".jpg"}
