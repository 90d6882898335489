# SPDX-License-Identifier: Apache-2.0
"""Finds the ``<answer>…</answer>`` envelope of a visible text."""

from __future__ import annotations

_OPEN, _CLOSE = b"<answer>", b"</answer>"


def last_envelope(text: str) -> str | None:
    """The content of the last envelope: from the last ``<answer>`` before the last ``</answer>`` (any case).

    ``None`` when there is no such pair. Content is returned as it stands, white space included. Two backward
    searches, so linear in the length of the text.
    """
    # Lower-casing bytes touches ASCII only and moves nothing; lower-casing a str can change its length.
    data = text.encode("utf-8", "surrogatepass")
    folded = data.lower()
    end = folded.rfind(_CLOSE)
    start = folded.rfind(_OPEN, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    return data[start + len(_OPEN) : end].decode("utf-8", "surrogatepass")
