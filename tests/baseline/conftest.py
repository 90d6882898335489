# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nemo_gym_video.baseline.engine import Engine
from nemo_gym_video.baseline.processor import MediaProcessor, ProcessorConfig
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.presets import load_settings

Pixels = NDArray[np.uint8]


def _omni(**overrides: Any) -> NemotronOmniSettings:
    settings = load_settings("nemotron_omni", overrides=overrides)
    assert isinstance(settings, NemotronOmniSettings)
    return settings


def _textured(seed: int, size: tuple[int, int]) -> Pixels:
    """Smooth grey noise of (width, height): something for flow to hold on to."""
    import cv2

    rng = np.random.default_rng(seed)
    small = rng.integers(40, 200, size=(size[1] // 8 + 1, size[0] // 8 + 1), dtype=np.uint8)
    grey = cv2.resize(small, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray(cv2.cvtColor(np.asarray(grey, np.uint8), cv2.COLOR_GRAY2RGB), np.uint8)


def _chat_messages(conversation: Sequence[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    """A row's Responses messages as Gym's model server sends them; tagged frames as one manifest."""
    messages = []
    for message in conversation:
        content: list[dict[str, Any]] = []
        frames: list[str] = []
        for part in message["content"]:
            if part["type"] == "input_text":
                content.append({"type": "text", "text": part["text"]})
            elif part.get("_is_video_frame"):
                frames.append(str(root / part["image_url"]))
            else:
                kind = part["type"].removeprefix("input_") + "_url"
                content.append({"type": kind, kind: {"url": part[kind]}})
        if frames:
            url = FrameManifest(frame_paths=tuple(frames)).to_url()
            content.insert(0, {"type": "video_url", "video_url": {"url": url}})
        messages.append({"role": message["role"], "content": content})
    return messages


def _ask(engine: Engine, messages: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """One chat completion with token ids."""
    body = {"model": "baseline", "messages": list(messages), "logprobs": True, "return_token_ids": True, **fields}
    return engine.chat(json.dumps(body).encode())


@pytest.fixture
def omni() -> Callable[..., NemotronOmniSettings]:
    return _omni


@pytest.fixture
def textured() -> Callable[[int, tuple[int, int]], Pixels]:
    return _textured


@pytest.fixture
def chat_messages() -> Callable[..., list[dict[str, Any]]]:
    return _chat_messages


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    return _ask


@pytest.fixture
def make_processor(tmp_path: Path) -> Callable[..., MediaProcessor]:
    def make(root: Path = tmp_path, *, max_model_len: int = 131072, **config: Any) -> MediaProcessor:
        settings = config.pop("settings", None) or _omni()
        return MediaProcessor(
            ProcessorConfig(settings=settings, max_model_len=max_model_len, media_roots=(root,), **config)
        )

    return make


@pytest.fixture
def make_engine(make_processor: Callable[..., MediaProcessor]) -> Callable[..., Engine]:
    def make(*root: Path, max_model_len: int = 131072, **config: Any) -> Engine:
        processor = make_processor(*root, max_model_len=max_model_len, **config)
        return Engine(processor, model="baseline", max_model_len=max_model_len)

    return make


@pytest.fixture
def write_image(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, size: tuple[int, int] = (64, 48), seed: int = 0) -> Path:
        path = tmp_path / name
        Image.fromarray(_textured(seed, size)).save(path)
        return path

    return write
