# SPDX-License-Identifier: Apache-2.0
"""Predicting counts: against its time limit, and against running transformers' Pillow processor on the pixels."""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.common import Comparison, compare
from nemo_gym_video import CountRequest, MediaSize, count_request, load_settings

_REQUESTS = 10_000
_LIMIT_SECONDS = 1.0
_REQUEST = CountRequest(items=(MediaSize("image", 1920, 1080),), max_model_len=32768)


def _ten_thousand(preset: str) -> Comparison:
    """Seconds of processor time on one core, so that neighbours on the machine do not count."""
    settings = load_settings(preset)
    seconds = []
    for _ in range(6):
        start = time.process_time()
        for _ in range(_REQUESTS):
            count_request(settings, _REQUEST)
        seconds.append(time.process_time() - start)
    return Comparison(
        name=f"10,000 requests of one 1920x1080 image, {preset}",
        ours="count_request",
        reference="the limit of 1 s",
        ours_seconds=statistics.median(seconds[1:]),
        reference_seconds=_LIMIT_SECONDS,
        claim=1.0,
    )


def _against_pixels() -> Comparison:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil  # extra: hf

    settings = load_settings("qwen2_5_vl")
    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 12845056})
    pixels = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), dtype=np.uint8)

    def ours() -> int:
        return count_request(settings, _REQUEST).total

    def reference() -> int:
        answer = processor(images=[pixels], return_tensors="np", input_data_format="channels_last")
        return int(np.prod(answer["image_grid_thw"][0])) // 4

    if ours() != reference():
        raise RuntimeError("the two sides of the benchmark disagree on the count")
    return compare(
        "tokens of one 1920x1080 image, qwen2_5_vl",
        ours=("count_request", ours),
        reference=("Qwen2VLImageProcessorPil on the pixels", reference),
        claim=100,
    )


def run() -> list[Comparison]:
    """Both claims."""
    return [_ten_thousand("nemotron_omni"), _ten_thousand("qwen2_5_vl"), _against_pixels()]
