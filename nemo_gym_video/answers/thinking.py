# SPDX-License-Identifier: Apache-2.0
"""Removes what a model wrote while thinking, in time linear in the length of the text."""

from __future__ import annotations

import re

# One flat pattern: no repeat inside a repeat, so a scan is linear whatever the text. ASCII, because the Kelvin
# sign would otherwise fold to the letter k.
_TAG = re.compile(r"<(/?)(think(?:ing)?)>", re.ASCII | re.IGNORECASE)


def remove_thinking(text: str) -> tuple[str, bool]:
    """The text outside ``<think>…</think>`` and ``<thinking>…</thinking>``, and whether one was left open.

    A closed block goes, its tags included; it runs to the first closing tag of its own name. A closing tag
    without an opening one takes everything before it along: the opening tag was part of the prompt. An opening
    tag that is never closed means that the model was cut off, so nothing it wrote is an answer.
    """
    if "<" not in text:
        return text, False
    tags = [(tag.start(), tag.end(), tag[1] == "/", len(tag[2])) for tag in _TAG.finditer(text)]
    if not tags:
        return text, False
    last_close = {length: start for start, _, closes, length in tags if closes}
    kept: list[str] = []
    copied = 0  # text before this position is in ``kept`` or removed
    block: int | None = None  # the length of the name of the block that we are in
    unclosed = False
    for start, end, closes, length in tags:
        if block is not None:
            if closes and length == block:
                block, copied = None, end
        elif closes:
            kept, copied, unclosed = [], end, False
        elif last_close.get(length, -1) > start:
            kept.append(text[copied:start])
            block = length
        else:
            unclosed = True
    kept.append(text[copied:])
    return "".join(kept), unclosed
