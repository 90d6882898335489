# SPDX-License-Identifier: Apache-2.0
"""A byte-level tokenizer: one token a byte of UTF-8, special ids below 256.

The special ids stand where Nemotron's tokenizer has them, so that everything which counts ``<image>`` = 18 works
unchanged. A special id is written by the chat template and the media processor only; text that spells a marker is
bytes like any other text.
"""

from __future__ import annotations

from collections.abc import Iterable

IM_START = 10
IM_END = 11
IMAGE = 18
IMG_START = 19
IMG_END = 20

SPECIAL_TOKENS = {
    IM_START: "<|im_start|>",
    IM_END: "<|im_end|>",
    IMAGE: "<image>",
    IMG_START: "<img>",
    IMG_END: "</img>",
}

_FIRST_BYTE = 256
VOCAB_SIZE = _FIRST_BYTE + 256


def encode(text: str) -> list[int]:
    """Token ids of ``text``: byte ``b`` of its UTF-8 becomes ``256 + b``. A lone surrogate keeps its bytes."""
    return [_FIRST_BYTE + byte for byte in text.encode("utf-8", "surrogatepass")]


def decode(token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
    """Text of ``token_ids``; bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
    return b"".join(token_bytes(token, skip_special_tokens=skip_special_tokens) for token in token_ids).decode(
        "utf-8", "replace"
    )


def token_bytes(token_id: int, *, skip_special_tokens: bool = False) -> bytes:
    """The bytes that one token stands for; a special token's are those of its marker."""
    if _FIRST_BYTE <= token_id < VOCAB_SIZE:
        return bytes([token_id - _FIRST_BYTE])
    return b"" if skip_special_tokens else SPECIAL_TOKENS.get(token_id, "").encode()
