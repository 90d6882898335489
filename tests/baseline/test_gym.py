# SPDX-License-Identifier: Apache-2.0
"""Gym's own ``vllm_model`` server, as published, against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from nemo_gym_video.launch.embedded_policy import Baseline, start_baseline
from nemo_gym_video.messages import FrameManifest

pytestmark = pytest.mark.servers

Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture(scope="module")
def baseline(root: Path) -> Iterator[Baseline]:
    with start_baseline([root], max_model_len=20_000) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["tokenize", "inline"])
def respond(
    baseline: Baseline, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """POST to the model server's /v1/responses; token ids by its /tokenize fallback and inline."""
    # Gym reads its configuration from sys.argv, and keeps one HTTP client a process, which belongs to the event
    # loop that used it first.
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", dict)
    monkeypatch.setattr("nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT", None)
    with model_server(baseline, request_prompt_and_generation_token_ids=request.param) as client:
        yield lambda conversation, **fields: client.post("/v1/responses", json={"input": conversation, **fields})


@contextmanager
def model_server(baseline: Baseline, **fields: Any) -> Iterator[Any]:
    from fastapi.testclient import TestClient
    from nemo_gym.server_utils import ServerClient
    from responses_api_models.vllm_model.app import (  # type: ignore[import-untyped]
        VLLMModel,
        VLLMModelConfig,
    )

    config = VLLMModelConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="",
        name="policy_model",
        base_url=baseline.base_url,
        api_key="none",
        model=baseline.model,
        return_token_id_information=True,
        uses_reasoning_parser=True,
        **fields,
    )
    client = MagicMock(spec=ServerClient, global_config_dict={})
    with TestClient(
        VLLMModel(config=config, server_client=client).setup_webserver(), raise_server_exceptions=False
    ) as http:
        yield http


@pytest.fixture
def frames(root: Path, textured: Callable[..., Any]) -> list[Path]:
    from PIL import Image

    paths = [root / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        Image.fromarray(textured(number, (640, 360))).save(path)
    return paths


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def text(words: str) -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def test_every_call_carries_tokens_with_the_media_in_them(respond: Callable[..., Any], frames: list[Path]) -> None:
    still = {"type": "input_image", "image_url": frames[0].as_uri(), "detail": "auto"}
    cached = FrameManifest(frame_paths=tuple(map(str, frames))).to_url()
    answer = respond([user(text("<image> is only text"), still, {"type": "input_video", "video_url": cached})])
    assert answer.status_code == 200
    item = answer.json()["output"][-1]
    assert item["prompt_token_ids"].count(18) == 286 + 3 * 252
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"]) > 0
    assert answer.json()["usage"]["input_tokens"] == len(item["prompt_token_ids"])


def test_turns_extend_each_other(respond: Callable[..., Any], frames: list[Path]) -> None:
    conversation: Messages = [user(text("Hello"))]
    seen: list[int] = []
    for path in frames:
        answer = respond(conversation).json()
        item = answer["output"][-1]
        assert item["prompt_token_ids"][: len(seen)] == seen
        seen = item["prompt_token_ids"] + item["generation_token_ids"]
        conversation += [
            *answer["output"],
            user({"type": "input_image", "image_url": str(path), "detail": "auto"}),
        ]
    assert seen.count(18) == 286 * 4


def test_what_is_too_long_ends_the_turn_and_not_the_run(respond: Callable[..., Any]) -> None:
    answer = respond([user(text("x" * 30_000))])
    assert answer.status_code == 200
    assert answer.json()["incomplete_details"] == {"reason": "max_output_tokens"}
    assert respond([user(text("short"))]).json()["incomplete_details"] is None


def test_refused_media_is_an_error_and_not_a_retry(respond: Callable[..., Any]) -> None:
    still = {"type": "input_image", "image_url": "/etc/hostname", "detail": "auto"}
    assert respond([user(still)]).status_code == 500
