# SPDX-License-Identifier: Apache-2.0
"""The text of a multiple-choice prompt, written and read back in one place."""

from __future__ import annotations

from collections.abc import Sequence

LETTERS = "ABCDEFGHIJ"

BOXED_INSTRUCTION = r"Please put the final answer within \boxed{...}."
"""The closing line of every multiple-choice prompt."""


def option_lines(options: Sequence[str]) -> str:
    """Lettered options, one a line: ``A. 1.0 s``."""
    return "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False))


def read_options(prompt: str) -> list[tuple[str, str]]:
    """The (letter, text) pairs of ``option_lines`` in a prompt: consecutive letters from A, one a line."""
    found: list[tuple[str, str]] = []
    for line in prompt.splitlines():
        label, separator, text = line.strip().partition(". ")
        if separator and len(found) < len(LETTERS) and label == LETTERS[len(found)]:
            found.append((label, text.strip()))
    return found


def mcqa_prompt(question: str, options: Sequence[str]) -> str:
    """The text part of a multiple-choice row: question, lettered options, boxed instruction."""
    return f"{question}\n{option_lines(options)}\n{BOXED_INSTRUCTION}"
