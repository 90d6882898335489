# SPDX-License-Identifier: Apache-2.0
"""Indexing against decoding on the way: 16 turns, 64 frames of 960x540 as data URLs, 256 tokens a frame."""

from __future__ import annotations

import base64
import io
import tracemalloc
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common import Comparison, compare
from nemo_gym_video import index_turns, iter_media_parts

TURNS, FRAMES_A_TURN, TOKENS_A_FRAME, MEDIA_ID = 16, 4, 256, 18


def frame_url(number: int, size: tuple[int, int]) -> str:
    """A picture with smooth shapes and some grain, as a lossless data URL (the frames of this package are PNG)."""
    width, height = size
    grain = np.random.default_rng(number).integers(0, 24, (height, width, 3))
    y, x = np.mgrid[0:height, 0:width]
    waves = 110 + 60 * np.sin((x + 9 * number) / 37) + 60 * np.cos(y / 23)
    pixels = np.clip(waves[..., None] + grain, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def make_rollout(urls: list[str]) -> dict[str, Any]:
    """A rollout whose every turn brings four of ``urls``, with the tokens of an append-only chain."""
    tokens: list[int] = list(range(1000, 1200))
    output: list[dict[str, Any]] = []
    first: list[dict[str, Any]] = []
    for turn in range(TURNS):
        content: list[dict[str, Any]] = []
        for number in range(FRAMES_A_TURN):
            content.append({"type": "input_image", "image_url": urls[turn * FRAMES_A_TURN + number]})
            content.append({"type": "input_text", "text": f"frame {number}"})
            tokens = [*tokens, 19, *[MEDIA_ID] * TOKENS_A_FRAME, 20, 1500 + number]
        message = {"type": "message", "role": "user", "content": content}
        (output if turn else first).append(message)
        generated = list(range(2000, 2050))
        output.append({"type": "message", "role": "assistant", "content": [], "prompt_token_ids": list(tokens),
                       "generation_token_ids": generated})  # fmt: skip
        tokens = tokens + generated
    return {"responses_create_params": {"input": first}, "response": {"output": output}}


def decode_on_the_way(rollout: dict[str, Any]) -> int:
    """What a post-processor does that opens images while it walks: every picture to RGB pixels."""
    decoded = 0
    for items in (rollout["responses_create_params"]["input"], rollout["response"]["output"]):
        for part in iter_media_parts(items):
            data = base64.b64decode(part.url[part.url.index(",") + 1 :])
            decoded += len(Image.open(io.BytesIO(data)).convert("RGB").tobytes())
    return decoded


def peak_bytes(size: tuple[int, int]) -> tuple[int, int]:
    """Peak memory of indexing in bytes, and the bytes of the rollout's data URLs, for frames of ``size``."""
    urls = [frame_url(number, size) for number in range(TURNS * FRAMES_A_TURN)]
    rollout = make_rollout(urls)
    index_turns(rollout, media_token_ids=[MEDIA_ID])
    tracemalloc.start()
    index_turns(rollout, media_token_ids=[MEDIA_ID])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, sum(map(len, urls))


def run() -> list[Comparison]:
    """The comparison, with the claim that the package makes."""
    urls = [frame_url(number, (960, 540)) for number in range(TURNS * FRAMES_A_TURN)]
    rollout = make_rollout(urls)
    return [
        compare(
            "index a rollout of 16 turns with 64 frames as data URLs",
            ours=("index_turns", lambda: index_turns(rollout, media_token_ids=[MEDIA_ID])),
            reference=("decode every image with Pillow", lambda: decode_on_the_way(rollout)),
            repeats=3,
            claim=100.0,
        )
    ]


if __name__ == "__main__":
    for comparison in run():
        print(f"{comparison.name}: {comparison.ours_seconds * 1000:.2f} ms against "
              f"{comparison.reference_seconds * 1000:.0f} ms, {comparison.ratio:.0f} times")  # fmt: skip
    for size in ((320, 180), (960, 540)):
        peak, urls = peak_bytes(size)
        print(f"frames of {size[0]}x{size[1]}: peak {peak / 1e6:.2f} MB for {urls / 1e6:.1f} MB of data URLs")
