# SPDX-License-Identifier: Apache-2.0
"""What an environment says between two model turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One environment answer.

    ``parts`` are the typed content parts of the user message that carries it (empty when the episode is done);
    ``tool_outputs`` are (call id, text) pairs, one for every function call of the turn, in call order. ``done``
    ends the episode and ``reason`` says why in one word. ``info`` holds numbers for the rollout's record.

    >>> from nemo_gym_video import Observation, image_part, text_part
    >>> shown = Observation(parts=(text_part("Picture 2."), image_part("media/2.png")))
    >>> shown.done, [part["type"] for part in shown.parts]
    (False, ['input_text', 'input_image'])
    """

    parts: tuple[dict[str, Any], ...] = ()
    tool_outputs: tuple[tuple[str, str], ...] = ()
    done: bool = False
    reason: str | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The body of a ``/step`` answer."""
        return {
            "observation": list(self.parts),
            "tool_outputs": [{"call_id": call, "output": text} for call, text in self.tool_outputs],
            "done": self.done,
            "reason": self.reason,
            "info": self.info,
        }


def turns_of(output: Sequence[Any]) -> list[list[Any]]:
    """Split an episode's output items into model turns.

    What the environment says begins the next turn: tool outputs with the user message after them, or either alone.
    """
    turns: list[list[Any]] = [[]]
    after_tool = False
    for item in output:
        kind, role = (item.get("type"), item.get("role")) if isinstance(item, Mapping) else (None, None)
        is_tool, is_user = kind == "function_call_output", kind == "message" and role != "assistant"
        if (is_tool or is_user) and not after_tool:
            turns.append([])
        if not is_tool and not is_user:
            turns[-1].append(item)
        after_tool = is_tool
    return turns
