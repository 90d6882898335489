# SPDX-License-Identifier: Apache-2.0
"""One request in, one answer out, without HTTP: parse, open media, expand placeholders, ask a policy.

All of it is CPU work and file reading, so the server calls it on worker threads; an ``Engine`` is safe for that.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym_video.baseline.chat import ChatMessage, RequestError, media_of, read_messages, render
from nemo_gym_video.baseline.processor import MediaProcessor
from nemo_gym_video.baseline.respond import respond
from nemo_gym_video.baseline.seen import SeenMedia, SeenMessage
from nemo_gym_video.baseline.tokenizer import IM_END, decode, encode, token_bytes

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """An expanded prompt and what the policy sees of it."""

    token_ids: list[int]
    messages: tuple[SeenMessage, ...]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling fields that the engine understands.

    ``temperature`` 0 (also when the request names none) is deterministic; above it answers are jittered, from
    ``seed`` when the request has one. ``max_tokens`` None means up to the context length.
    """

    temperature: float
    seed: int | None
    max_tokens: int | None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> SamplingParams:
        """Read the fields of a chat request; ``RequestError`` for one of the wrong type or range."""
        if body.get("stream"):
            raise RequestError("streaming is not supported", got=body["stream"], allowed="stream: false")
        if body.get("n") not in (None, 1):
            raise RequestError("only one choice a request is supported", got=body["n"], allowed="n: 1")
        temperature = body.get("temperature")
        if temperature is not None and not (_is_number(temperature) and 0 <= temperature <= 2):
            raise RequestError("temperature is out of range", got=temperature, allowed="0 to 2")
        seed = body.get("seed")
        if seed is not None and not _is_int(seed):
            raise RequestError("seed is no integer", got=seed)
        limit = body.get("max_completion_tokens")
        limit = body.get("max_tokens") if limit is None else limit
        if limit is not None and not (_is_int(limit) and limit >= 1):
            raise RequestError("max_tokens must be at least 1", got=limit)
        return cls(float(temperature or 0), seed, limit)

    def rng(self) -> random.Random | None:
        """The source of jitter, or None for a deterministic answer."""
        return random.Random(self.seed) if self.temperature > 0 else None


class Engine:
    """The baseline behind vLLM's request and response shapes."""

    def __init__(self, processor: MediaProcessor, *, model: str, max_model_len: int) -> None:
        """Serve as ``model`` with a context of ``max_model_len`` tokens."""
        self._processor = processor
        self._model = model
        self._max_model_len = max_model_len
        self._created = int(time.time())

    def models(self) -> Json:
        """The answer of ``GET /v1/models``."""
        card = {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "nemo-gym-video",
            "root": self._model,
            "parent": None,
            "max_model_len": self._max_model_len,
        }
        return {"object": "list", "data": [card]}

    def tokenize(self, raw: bytes) -> Json:
        """The answer of ``POST /tokenize`` for a ``prompt`` string or for chat ``messages``."""
        body = self._read_body(raw)
        text = body.get("prompt")
        tokens = encode(text) if isinstance(text, str) else self._prompt(body).token_ids
        return {"count": len(tokens), "max_model_len": self._max_model_len, "tokens": tokens, "token_strs": None}

    def chat(self, raw: bytes) -> Json:
        """The answer of ``POST /v1/chat/completions``."""
        body = self._read_body(raw)
        sampling = SamplingParams.read(body)
        prompt = self._prompt(body)
        room = self._room(len(prompt.token_ids), sampling.max_tokens)
        text = respond(prompt.messages, rng=sampling.rng(), temperature=sampling.temperature)
        generated = [*encode(text), IM_END]
        finish_reason = "stop" if len(generated) <= room else "length"
        return self._completion(body, prompt.token_ids, generated[:room], finish_reason)

    def _read_body(self, raw: bytes) -> Json:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"request body is not valid JSON ({error})"[:300]) from error
        if not isinstance(body, dict):
            raise RequestError("request body is no JSON object", got=type(body).__name__)
        model = body.get("model", self._model)
        if model != self._model:
            raise RequestError(f"The model `{model}` does not exist.", status=404, allowed=self._model)
        return body

    def _prompt(self, body: Mapping[str, Any]) -> Prompt:
        if body.get("continue_final_message"):
            raise RequestError("continue_final_message is not supported", got=True, allowed="false")
        messages = read_messages(body.get("messages"))
        tools = body.get("tools") or []
        if not isinstance(tools, list):
            raise RequestError("tools must be a list", got=type(tools).__name__)
        media = self._processor.open_all(media_of(messages))
        token_ids = render(
            messages,
            self._processor.expand(media),
            tools=tools,
            add_generation_prompt=body.get("add_generation_prompt", True) is not False,
        )
        return Prompt(token_ids, _see(messages, media))

    def _room(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Tokens that may be generated. The messages are worded as vLLM's, because Gym recognises those."""
        limit = self._max_model_len
        if prompt_tokens >= limit:
            raise RequestError(
                f"This model's maximum context length is {limit} tokens. However, you requested {prompt_tokens} "
                "tokens in the messages, Please reduce the length of the messages."
            )
        if max_tokens is not None and prompt_tokens + max_tokens > limit:
            raise RequestError(
                f"'max_tokens' or 'max_completion_tokens' is too large: {max_tokens}. This model's maximum "
                f"context length is {limit} tokens and your request has {prompt_tokens} input tokens "
                f"({max_tokens} > {limit} - {prompt_tokens})."
            )
        return limit - prompt_tokens if max_tokens is None else max_tokens

    def _completion(
        self, body: Mapping[str, Any], prompt: list[int], generated: list[int], finish_reason: str
    ) -> Json:
        choice: Json = {
            "index": 0,
            "message": {"role": "assistant", "content": decode(generated), "refusal": None, "tool_calls": []},
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
        }
        answer: Json = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(generated),
                "total_tokens": len(prompt) + len(generated),
                "prompt_tokens_details": None,
            },
            "prompt_logprobs": None,
        }
        if body.get("logprobs"):
            choice["logprobs"] = {"content": _logprobs(generated, bool(body.get("return_tokens_as_token_ids")))}
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = prompt
            choice["token_ids"] = generated
        return answer


def _see(messages: Sequence[ChatMessage], media: Sequence[SeenMedia]) -> tuple[SeenMessage, ...]:
    opened = iter(media)
    return tuple(
        SeenMessage(message.role, tuple(part if isinstance(part, str) else next(opened) for part in message.parts))
        for message in messages
    )


def _logprobs(generated: Sequence[int], as_token_ids: bool) -> list[Json]:
    return [
        {
            "token": f"token_id:{token}" if as_token_ids else decode([token], skip_special_tokens=False),
            "logprob": _pseudo_log_prob(token, position),
            "bytes": list(token_bytes(token)),
            "top_logprobs": [],
        }
        for position, token in enumerate(generated)
    ]


def _pseudo_log_prob(token: int, position: int) -> float:
    """A finite negative number in (-0.26, 0), the same for the same token and position.

    The policies are programs and have no distribution over tokens; trainers need some number here.
    """
    mixed = (token * 2654435761 + position * 40503) % 65536
    return -0.001 - 0.25 * mixed / 65536


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
