# SPDX-License-Identifier: Apache-2.0
"""Whether an observation still fits the context, decided before it is sent.

Media tokens come from the contract. Text tokens are estimated with the rate of the last prompt itself: what of it
was no media, over the bytes of text that were in it; so labels, templates and the tokenizer are all accounted for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nemo_gym_video.alignment.runs import find_runs
from nemo_gym_video.contract import RowContract
from nemo_gym_video.servers.play import Call

TOKEN_BUDGET = "token_budget"


def text_bytes(messages: Sequence[Any]) -> int:
    """UTF-8 bytes of all text in ``messages``; media parts count nothing."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for message in messages for text in _texts(message))


def _texts(message: Any) -> Iterator[str]:
    if not isinstance(message, Mapping):
        return
    for key in ("content", "output", "arguments"):
        value = message.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (str(part["text"]) for part in value if isinstance(part, Mapping) and part.get("text"))


def tokens_after(
    call: Call, *, sent: Sequence[Any], observation: Sequence[Any], media_tokens: int, contract: RowContract
) -> int | None:
    """Tokens of the next prompt if ``observation`` is sent; None when the call reported no token ids.

    ``sent`` are the messages of ``call``; ``media_tokens`` those of the observation's media.
    """
    if call.prompt_token_ids is None:
        return None
    prompt = len(call.prompt_token_ids)
    runs = find_runs(call.prompt_token_ids, contract.media_token_ids) if contract.media_token_ids else ()
    rate = (prompt - sum(run.length for run in runs)) / max(1, text_bytes(sent))
    said = len(call.generation_token_ids or ())
    return prompt + said + media_tokens + math.ceil(rate * text_bytes(observation))
