# SPDX-License-Identifier: Apache-2.0
"""A multi-turn rollout without ports: real agent code, real verifier app, a scripted model.

The scripted model says what it is told, and tokenises with the baseline's processor, so its prompts grow as an
engine's do: append-only, with the placeholders that the media really have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter

from nemo_gym_video.baseline.chat import ChatMessage, media_of, read_messages, render, tool_call_text
from nemo_gym_video.baseline.processor import MediaProcessor, ProcessorConfig
from nemo_gym_video.baseline.tokenizer import IM_END, encode
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.servers.agent import Rollouts
from nemo_gym_video.servers.agent_config import VideoAgentConfig
from nemo_gym_video.servers.gym_root import search_root
from nemo_gym_video.servers.task_verifier import TaskVerifier, VerifierConfig
from nemo_gym_video.servers.verifier import offline

FRAMES = 32
CONTEXT = 131072
SAYS = str | list[dict[str, Any]] | tuple[int, str]
"""What the model does in one call: a text, output items, or an HTTP error (status, body)."""


def verifier(name: str, **settings: Any) -> TaskVerifier:
    """A verifier server of the task of that name, in this process; its media settings and the task's own mixed."""
    own = {key: settings.pop(key) for key in list(settings) if key not in VerifierConfig.model_fields}
    return offline(TaskVerifier, VerifierConfig, task=name, task_settings=own, **settings)


def example_rows(environment: str) -> list[dict[str, Any]]:
    """The rows that the environment ships."""
    file = search_root() / "environments" / environment / "data" / "example.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}


def function_call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


@dataclass
class Reply:
    """As much of an aiohttp response as the agent reads."""

    status: int
    content: bytes
    cookies: SimpleCookie = field(default_factory=SimpleCookie)

    async def read(self) -> bytes:
        return self.content


class ScriptedModel:
    """Says ``script`` call by call; ``prompts`` are the token ids of every call."""

    def __init__(self, script: Sequence[SAYS], roots: Sequence[Path]) -> None:
        settings = load_settings("nemotron_omni")
        assert isinstance(settings, NemotronOmniSettings)
        config = ProcessorConfig(
            settings=settings, max_model_len=CONTEXT, media_roots=tuple(roots), num_frames=FRAMES
        )
        self.script = list(script)
        self.prompts: list[list[int]] = []
        self.inputs: list[list[Any]] = []
        self._processor = MediaProcessor(config)
        self._converter = ResponsesConverter(return_token_id_information=True, uses_reasoning_parser=False)

    def respond(self, body: Mapping[str, Any]) -> Reply:
        """Answer one /v1/responses body."""
        says = self.script[min(len(self.prompts), len(self.script) - 1)]
        messages = self._chat_messages(body)
        media = self._processor.open_all(media_of(messages))
        self.prompts.append(render(messages, self._processor.expand(media), tools=body.get("tools") or ()))
        self.inputs.append(body["input"])
        if isinstance(says, tuple):
            return Reply(says[0], says[1].encode())
        output = [dict(item) for item in ([message(says)] if isinstance(says, str) else says)]
        generated = [*encode("".join(map(generated_text, output))), IM_END]
        output[-1] |= {
            "prompt_token_ids": self.prompts[-1],
            "generation_token_ids": generated,
            "generation_log_probs": [-0.1] * len(generated),
        }
        response = {
            "id": f"resp_{len(self.prompts)}",
            "created_at": 1,
            "model": "scripted",
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        return Reply(200, json.dumps(response).encode())

    def _chat_messages(self, body: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
        """The messages as Gym's model server hands them to the engine."""
        params = NeMoGymResponseCreateParamsNonStreaming.model_validate(body)
        chat = self._converter.responses_to_chat_completion_create_params(params)
        return read_messages(chat.model_dump(mode="json", exclude_unset=True)["messages"])


def generated_text(item: Mapping[str, Any]) -> str:
    """What the model wrote to say this output item."""
    if item["type"] == "function_call":
        return tool_call_text(item["name"], item["arguments"])
    return "".join(part["text"] for part in item["content"])


class LocalClient:
    """Gym's HTTP client as the agent uses it, with both servers in this process."""

    def __init__(self, model: ScriptedModel, app: FastAPI) -> None:
        self.model = model
        self.paths: list[str] = []
        self.before: Callable[[str], Reply | None] = lambda path: None
        self._transport = httpx.ASGITransport(app)

    async def post(self, server_name: str, url_path: str, *, data: bytes, cookies: Any, **unused: Any) -> Reply:
        self.paths.append(url_path)
        if (reply := self.before(url_path)) is not None:
            return reply
        if server_name == "policy_model":
            return await asyncio.to_thread(self.model.respond, json.loads(data))
        async with httpx.AsyncClient(transport=self._transport, base_url="http://verifier") as http:
            http.cookies.update(dict(cookies))
            answer = await http.post(url_path, content=data, headers={"Content-Type": "application/json"})
        return Reply(answer.status_code, answer.content, SimpleCookie(dict(answer.cookies)))


class World:
    """One agent, one verifier, one scripted model."""

    def __init__(
        self,
        name: str,
        script: Sequence[SAYS],
        store: Path,
        *,
        server: Any = None,
        roots: Sequence[str] | None = None,
        **agent: Any,
    ) -> None:
        """``server`` and ``roots`` default to the verifier and the example media of the environment ``name``."""
        roots = ["data"] if roots is None else list(roots)
        media: dict[str, Any] = {"environment": name, "media_roots": roots, "media_store": str(store)}
        self.server = server or verifier(name, **media)
        store.mkdir(exist_ok=True)
        self.model = ScriptedModel(
            script, [*(search_root() / "environments" / name / root for root in roots), store]
        )
        self.client = LocalClient(self.model, self.server.setup_webserver())
        settings: dict[str, Any] = {
            "processor": "nemotron_omni",
            "max_model_len": CONTEXT,
            "video_sampling": {"convention": "nemo_rl", "num_frames": FRAMES},
            "multi_turn": True,
            **agent,
        }
        config = VideoAgentConfig(
            name="agent", host="127.0.0.1", port=0, entrypoint="app.py", **media, **settings,
            resources_server={"type": "resources_servers", "name": name},
            model_server={"type": "responses_api_models", "name": "policy_model"},
        )  # fmt: skip
        self.agent = Rollouts(config, self.client)

    @property
    def open_sessions(self) -> int:
        assert self.server._routes is not None
        return len(self.server._routes.sessions)

    async def arun(self, row: dict[str, Any]) -> dict[str, Any]:
        return await self.agent.run(row, cookies={}, model_path="/v1/responses")

    def run(self, row: dict[str, Any]) -> dict[str, Any]:
        """One rollout, as JSON brings it back; afterwards no session may be open."""
        result: dict[str, Any] = json.loads(json.dumps(asyncio.run(self.arun(row))))
        assert self.open_sessions == 0
        return result
