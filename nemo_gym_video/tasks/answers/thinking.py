# SPDX-License-Identifier: Apache-2.0
"""Removes what a model wrote while thinking, in time linear in the length of the text."""

from __future__ import annotations

import re

# One flat pattern: no repeat inside a repeat, so a scan is linear whatever the text. ASCII, because the Kelvin
# sign would otherwise fold to the letter k.
_TAG = re.compile(r"<(/?)think(ing)?>", re.ASCII | re.IGNORECASE)


def remove_thinking(text: str) -> tuple[str, bool]:
    """The text outside ``<think>…</think>`` and ``<thinking>…</thinking>``, and whether one was left open.

    A closed block goes, its tags included; it runs to the first closing tag of its own name. A closing tag
    without an opening one takes everything before it along: the opening tag was part of the prompt. An opening
    tag that is never closed means that the model was cut off, so nothing it wrote is an answer.
    """
    if "<" not in text:
        return text, False
    pieces = _TAG.split(text)  # text, slash, name, text, …, text: one C loop however many tags there are
    if len(pieces) == 1:
        return text, False
    texts, slashes, names = pieces[0::3], pieces[1::3], [ending is None for ending in pieces[2::3]]
    last_close = {name: index for index, (slash, name) in enumerate(zip(slashes, names, strict=True)) if slash}
    kept = [texts[0]]
    block: bool | None = None  # the name of the block that we are in: whether it is the short one
    unclosed = False
    for index, (slash, name) in enumerate(zip(slashes, names, strict=True)):
        if block is not None:
            if not slash or name != block:
                continue
            block = None
        elif slash:
            kept, unclosed = [], False
        elif last_close.get(name, -1) > index:
            block = name
            continue
        else:
            unclosed = True
        kept.append(texts[index + 1])
    return "".join(kept), unclosed
