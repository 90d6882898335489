# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym_video.baseline.tokenizer import (
    IM_END,
    IM_START,
    IMAGE,
    IMG_END,
    IMG_START,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    decode,
    encode,
    token_bytes,
)


def test_text_is_its_bytes() -> None:
    assert encode("A é") == [256 + 65, 256 + 32, 256 + 0xC3, 256 + 0xA9]


def test_media_ids_are_those_of_nemotron() -> None:
    assert (IMAGE, IMG_START, IMG_END) == (18, 19, 20)


@pytest.mark.parametrize("marker", SPECIAL_TOKENS.values())
def test_a_marker_in_text_is_never_the_special_token(marker: str) -> None:
    assert min(encode(marker)) >= 256
    assert decode(encode(marker)) == marker


@given(st.text(max_size=200))
def test_decoding_gives_the_text_back(text: str) -> None:
    ids = encode(text)
    assert decode(ids) == text
    assert len(ids) == len(text.encode())
    assert all(256 <= token < VOCAB_SIZE for token in ids)


def test_special_tokens_are_skipped_or_spelled() -> None:
    ids = [IM_START, *encode("hi"), IM_END]
    assert decode(ids) == "hi"
    assert decode(ids, skip_special_tokens=False) == "<|im_start|>hi<|im_end|>"


def test_ids_outside_the_vocabulary_decode_to_nothing() -> None:
    assert decode([5, 255, VOCAB_SIZE, 10**9, -1], skip_special_tokens=False) == ""


def test_half_a_character_decodes_to_a_replacement() -> None:
    assert decode(encode("é")[:1]) == "\ufffd"


def test_a_lone_surrogate_has_bytes() -> None:
    assert [token_bytes(token) for token in encode("\ud800")] == [b"\xed", b"\xa0", b"\x80"]
