# SPDX-License-Identifier: Apache-2.0
"""Against an independent re-telling of NeMo RL's binning, on the golden rollouts and on random ones."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nemo_gym_video.alignment.pixels import MediaReader
from nemo_gym_video.errors import MediaSourceError
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.trainers.nemo_rl import nemo_rl_turns

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "rollouts").glob("*.json"))


def bins_of_nemo_rl(rollout: dict[str, Any]) -> list[list[str]]:
    """The image URLs a turn, as NeMo RL collects them; written from its described behaviour, not from our code."""
    response = rollout["response"]
    waiting: list[str] = []

    def collect(messages: Any) -> None:
        if not isinstance(messages, list):
            return
        for message in messages:
            if message.get("role") == "assistant":
                continue
            body = (
                message.get("output") if message.get("type") == "function_call_output" else message.get("content")
            )
            for part in body if isinstance(body, list) else []:
                if part.get("type") == "input_image":
                    url = part.get("image_url")
                    waiting.append(url["url"] if isinstance(url, dict) else url)

    collect(response.get("seed_obs") or response.get("agent_input") or rollout["responses_create_params"]["input"])
    bins = []
    for item in response["output"]:
        if item.get("generation_token_ids"):
            bins.append(waiting)
            waiting = []
        else:
            collect([item])
    return bins


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_images_are_binned_as_nemo_rl_does(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    result = nemo_rl_turns(case["rollout"], **case["call"])
    assert [[ref.urls[0] for ref in turn.image_refs] for turn in result.turns] == bins_of_nemo_rl(case["rollout"])


def random_images(seed: int, *, assistant_media: bool = True) -> dict[str, Any]:
    """A rollout with images only, in every place that may hold one."""
    rng = random.Random(seed)

    def content() -> list[dict[str, Any]]:
        return [{"type": "input_image", "image_url": f"{rng.randint(0, 9)}.png"} for _ in range(rng.randint(0, 3))]

    def item() -> dict[str, Any]:
        kind = rng.choice(["user", "tool", "assistant", "string", "turn", "turn"])
        if kind == "tool":
            return {"type": "function_call_output", "call_id": "c", "output": content()}
        if kind == "string":
            return {"type": "function_call_output", "call_id": "c", "output": "plain"}
        if kind == "turn":
            return {"type": "message", "role": rng.choice(["assistant", "user"]), "content": [],
                    "prompt_token_ids": [1], "generation_token_ids": [2]}  # fmt: skip
        return {"type": "message", "role": kind, "content": content() if kind == "user" or assistant_media else []}

    first = {name: [{"role": "user", "content": content()}] for name in ("seed_obs", "agent_input")}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": content()}]},
        "response": {name: value for name, value in first.items() if rng.random() < 0.3}
        | {"output": [item() for _ in range(rng.randint(0, 12))]},
    }


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_random_image_rollouts_are_binned_as_nemo_rl_does(seed: int) -> None:
    rollout = random_images(seed)
    result = nemo_rl_turns(rollout)
    assert [[ref.urls[0] for ref in turn.image_refs] for turn in result.turns] == bins_of_nemo_rl(rollout)
    assert not any(turn.videos for turn in result.turns)


def test_the_oracle_can_fail() -> None:
    rollout = random_images(3)
    rollout["response"]["output"] = [
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "x.png"}]},
        {"type": "message", "role": "assistant", "prompt_token_ids": [1], "generation_token_ids": [2]},
    ]
    moved = json.loads(json.dumps(rollout))
    moved["response"]["output"].reverse()
    found = [[ref.urls[0] for ref in turn.image_refs] for turn in nemo_rl_turns(moved).turns]
    assert found != bins_of_nemo_rl(rollout)


def test_later_video_is_what_nemo_rl_drops() -> None:
    case = json.loads(next(path for path in FIXTURES if path.stem == "later_turn_video").read_text())
    result = nemo_rl_turns(case["rollout"], media_token_ids=[9])
    assert bins_of_nemo_rl(case["rollout"]) == [[], []]
    assert [[one.source for one in turn.videos] for turn in result.turns] == [[], ["cut.mp4"]]
    second = result.turns[1]
    assert list(second.new_token_ids) == [3, 9, 9, 4, 9, 9, 5]
    assert second.spans == (((1, 3), (4, 6)),)
    assert second.feature_mask.tolist() == [False, True, True, False, True, True, False, False]
    assert result.contiguous


def test_masks_leave_out_media_ids_that_the_model_wrote() -> None:
    case = json.loads(next(path for path in FIXTURES if path.stem == "generated_media_tokens").read_text())
    first, second = nemo_rl_turns(case["rollout"], media_token_ids=[9]).turns
    assert first.loss_mask.tolist() == [True, False, False, True, False]
    assert first.feature_mask.tolist() == [True, False, False, False, False, False, False]
    assert list(second.new_token_ids) == [9, 9, 3]
    assert second.feature_mask.tolist() == [True, True, False, False]
    assert [finding.kind for finding in first.findings] == ["generated_media_token"]


def test_the_messages_add_up_to_the_last_prompt() -> None:
    """New tokens and generated tokens, turn by turn, are the rollout's tokens: no token twice, none lost."""
    for path in FIXTURES:
        case = json.loads(path.read_text(encoding="utf-8"))
        result = nemo_rl_turns(case["rollout"], **case["call"])
        if not result.contiguous or not result.turns:
            continue
        log = [token for turn in result.turns for token in (*turn.new_token_ids, *turn.generation_token_ids)]
        last = [item for item in case["rollout"]["response"]["output"] if item.get("generation_token_ids")][-1]
        assert log == [*last.get("prompt_token_ids", []), *last["generation_token_ids"]]


def test_compaction_is_not_contiguous() -> None:
    case = json.loads(next(path for path in FIXTURES if path.stem == "compaction_image").read_text())
    assert not nemo_rl_turns(case["rollout"], media_token_ids=[9]).contiguous


def png(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def test_pixels_come_out_in_order(tmp_path: Path) -> None:
    for name, colour in (("r", (255, 0, 0)), ("g", (0, 255, 0)), ("b", (0, 0, 255))):
        (tmp_path / f"{name}.png").write_bytes(png(colour))
    data = "data:image/png;base64," + base64.b64encode(png((9, 9, 9))).decode()
    manifest = FrameManifest(frame_paths=(str(tmp_path / "g.png"), str(tmp_path / "r.png"))).to_url()
    tagged = {"type": "input_image", "_is_video_frame": True, "_video_source": "v.mp4"}
    content = [
        {"type": "input_image", "image_url": "r.png"},
        tagged | {"image_url": "b.png"},
        tagged | {"image_url": data},
        {"type": "input_video", "video_url": manifest},
    ]
    turn_item = {"type": "message", "role": "assistant", "prompt_token_ids": [1], "generation_token_ids": [2]}
    rollout = {
        "responses_create_params": {"input": [{"role": "user", "content": content}]},
        "response": {"output": [turn_item]},
    }
    (turn,) = nemo_rl_turns(rollout).turns
    reader = MediaReader(MediaSources(SourcePolicy((tmp_path,))))
    images = turn.decode_images(reader)
    assert [tuple(image.pixels[0, 0].tolist()) for image in images] == [(255, 0, 0), (0, 0, 255), (9, 9, 9)]
    videos = turn.decode_videos(reader)
    assert [frames.pixels[:, 0, 0].tolist() for frames in videos] == [
        [[0, 0, 255], [9, 9, 9]],
        [[0, 255, 0], [255, 0, 0]],
    ]
    assert videos[0].pixels.dtype == np.uint8
    assert videos[0].size == (6, 4)


def test_pixels_stay_inside_the_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.png").write_bytes(png((1, 2, 3)))
    part = {"type": "input_image", "image_url": str(tmp_path / "out.png")}
    turn_item = {"type": "message", "role": "assistant", "prompt_token_ids": [1], "generation_token_ids": [2]}
    rollout = {
        "responses_create_params": {"input": [{"role": "user", "content": [part]}]},
        "response": {"output": [turn_item]},
    }
    (turn,) = nemo_rl_turns(rollout).turns
    with pytest.raises(MediaSourceError):
        turn.decode_images(MediaReader(MediaSources(SourcePolicy((tmp_path / "in",)))))
