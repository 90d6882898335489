# SPDX-License-Identifier: Apache-2.0
"""The small pieces that every row is made of: typed parts, a user message, an agent reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from nemo_gym_video.contract.rules import DEFAULT_PLACEHOLDERS
from nemo_gym_video.errors import PreparationError, Where
from nemo_gym_video.messages import image_part
from nemo_gym_video.prepare.outcome import Refusal

Transport = Literal["video", "frames", "stills"]
"""How a row carries a video: the source video, tagged lossless PNG frames, or labelled JPEG stills."""


def chosen_transport(source: str, asked: Transport | None, carried: Sequence[Transport]) -> Transport:
    """``asked``, or the first that the data set ``source`` carries when nothing is asked.

    Raises:
        PreparationError: rows of the data set cannot carry a video that way.
    """
    if asked is None:
        return carried[0]
    if asked not in carried:
        raise PreparationError(f"rows of {source} cannot carry a video that way", got=asked,
                               allowed=", ".join(carried), where="--transport")  # fmt: skip
    return asked


def tagged_frame(url: str, *, source: str, index: int) -> dict[str, Any]:
    """One frame of a video as a tagged ``input_image`` part; ``index`` is its number in the clip."""
    return {**image_part(url), "_is_video_frame": True, "_video_source": source, "_video_frame_index": index}


def user_message(content: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One user message of typed parts."""
    return {"role": "user", "content": list(content)}


def agent_ref(name: str) -> dict[str, str]:
    """Which agent instance runs the row."""
    return {"type": "responses_api_agents", "name": name}


def check_text(text: str, *, where: Where | None = None) -> str:
    """``text`` unchanged, or a ``Refusal`` when it holds a literal media placeholder."""
    for placeholder in DEFAULT_PLACEHOLDERS:
        if placeholder in text:
            raise Refusal(
                "placeholder_text", "text holds a literal media placeholder", got=placeholder, where=where
            )
    return text
