# SPDX-License-Identifier: Apache-2.0
"""Finds the ``<answer>…</answer>`` envelope of a visible text."""

from __future__ import annotations

import re

_OPEN = re.compile("<answer>", re.ASCII | re.IGNORECASE)
_CLOSE = re.compile("</answer>", re.ASCII | re.IGNORECASE)
_LONGEST = len("</answer>")
_WINDOW = 1 << 14


def last_envelope(text: str) -> str | None:
    """The content of the last envelope: from the last ``<answer>`` before the last ``</answer>`` (any case).

    ``None`` when there is no such pair. Content is returned as it stands, white space included. Two searches from
    the end, so linear in the length of the text, and short where the answer comes last.
    """
    close = _last_match(_CLOSE, text, len(text))
    opening = None if close is None else _last_match(_OPEN, text, close.start())
    return None if close is None or opening is None else text[opening.end() : close.start()]


def _last_match(pattern: re.Pattern[str], text: str, stop: int) -> re.Match[str] | None:
    """The last match that ends at or before ``stop``, looked for window by window from there backwards."""
    upper = stop
    while upper > 0:
        lower = max(0, upper - _WINDOW)
        # A match may reach over the window's end, never over ``stop``.
        matches = list(pattern.finditer(text, lower, min(upper + _LONGEST - 1, stop)))
        if matches:
            return matches[-1]
        upper = lower
    return None
