# SPDX-License-Identifier: Apache-2.0
"""Video and image rollouts for NeMo Gym: agents, verifiers, token counts and per-turn media."""

import importlib

__version__ = "0.1.0"

_DEFINED_IN = {
    "Answer": "tasks.task",
    "Episode": "tasks.task",
    "Observation": "tasks.observation",
    "Score": "tasks.task",
    "Task": "tasks.task",
    "image_part": "messages",
    "text_part": "messages",
}


def __getattr__(name: str) -> object:
    """What a task's file imports, loaded when it is first used."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
