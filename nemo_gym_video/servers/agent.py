# SPDX-License-Identifier: Apache-2.0
"""What the video agent does with one row: read, emit, roll out, check the tokens, verify, report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson
from fastapi import HTTPException, Request
from nemo_gym.server_utils import ServerClient

from nemo_gym_video.contract import CONTRACT_FIELD, ContractItem, RowContract
from nemo_gym_video.errors import NemoGymVideoError, RowError, Where
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.servers.agent_config import VideoAgentConfig
from nemo_gym_video.servers.budget import TOKEN_BUDGET
from nemo_gym_video.servers.clients import ModelServer, VerifierServer
from nemo_gym_video.servers.contracts import ContractMaker
from nemo_gym_video.servers.emit import Emission, Emitter
from nemo_gym_video.servers.evidence import MediaRecord
from nemo_gym_video.servers.failure import MEDIA_ALIGNMENT, cut_short, failed_row, masked
from nemo_gym_video.servers.fetch import Fetcher
from nemo_gym_video.servers.play import (
    EnvironmentFailed,
    PlayedEpisode,
    SingleTurn,
    observation_items,
    run_episode,
)
from nemo_gym_video.tasks.observation import Observation

_PARSE_INLINE_BYTES = 1 << 20


async def read_json_body(request: Request) -> dict[str, Any]:
    """The request's body as it came: Gym's typed request models would drop the keys that tag a frame."""
    raw = await request.body()
    try:
        parse = orjson.loads
        body = parse(raw) if len(raw) < _PARSE_INLINE_BYTES else await asyncio.to_thread(parse, raw)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"body is no JSON ({error})") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "body is no JSON object")
    return body


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The part of a row that goes to the model: its messages and the request's other parameters."""

    conversation: Any
    params: dict[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any], where: Where) -> RowRequest:
        """Read ``responses_create_params``; a ``RowError`` says what is wrong with it."""
        params = row.get("responses_create_params")
        if not isinstance(params, Mapping):
            raise RowError(
                "row has no responses_create_params",
                code="row.no_input",
                got=params,
                allowed="an object",
                where=where,
            )
        conversation = params.get("input")
        if not isinstance(conversation, str | list) or not conversation:
            raise RowError("responses_create_params has no input", code="row.no_input", got=conversation,
                           allowed="a string or a list of messages", where=where)  # fmt: skip
        return cls(conversation, {key: value for key, value in params.items() if key != "input"})


def row_place(row: Mapping[str, Any]) -> Where:
    """What to call a row in an error: the index that Gym's collection gave it."""
    index = row.get("_ng_task_index")
    return Where(row=index if isinstance(index, int) else None)


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row that is ready to be sent: its request, what of it goes to the model, and its contract."""

    request: RowRequest
    emission: Emission
    contract: RowContract | None


@dataclass(frozen=True, slots=True)
class ShownMedia:
    """An observation that is ready to be sent, and the contract items of its media."""

    emission: Emission
    items: tuple[ContractItem, ...]


class Rollouts:
    """Runs rows for one agent server. All media work happens on a bounded pool of threads."""

    def __init__(self, config: VideoAgentConfig, client: ServerClient) -> None:
        """Resolve media roots and processor settings once; what is wrong with them is said here, at the start."""
        self._config = config
        self._client = client
        self._pool = ThreadPoolExecutor(config.media_threads, thread_name_prefix="media")
        sources = MediaSources(config.source_policy())
        store = ContentStore(config.store())
        self._fetcher = Fetcher(sources, store)
        self._emitter = Emitter(
            sources,
            tagged_frames=config.tagged_frames,
            media_urls=config.media_urls,
            store=store,
        )
        self._contracts = ContractMaker(config, sources)
        self._closing: set[asyncio.Future[None]] = set()

    async def run(self, row: dict[str, Any], *, cookies: Mapping[str, str], model_path: str) -> dict[str, Any]:
        """Answer ``/run``: the verified result, or the row with the reason why there is none."""
        verifier = VerifierServer(self._client, self._config.resources_server.name, cookies,
                                  timeout_s=self._config.verifier_timeout_s)  # fmt: skip
        try:
            request = RowRequest.of(row, row_place(row))
            await self._fetcher.bring(request.conversation, row_place(row))
            prepared = await self._in_pool(self._prepare, row, request)
            media = MediaRecord(prepared.contract, row.get(CONTRACT_FIELD))
            media.add(0, prepared.emission)
            async with self._session(row, verifier) as opening:
                seed = await self._open(opening, media)
                episode = await self._play(prepared, seed, verifier, media, model_path)
                result = await self._verified(row, episode, verifier)
            return await self._reported(row, result, episode, prepared.emission, seed, media)
        except NemoGymVideoError as error:
            return failed_row(row, error)

    async def respond(self, body: dict[str, Any], *, model_path: str) -> dict[str, Any]:
        """Answer ``/v1/responses``: one model call with media resolved, nothing verified.

        Raises:
            HTTPException: 422 in one sentence: the request, its media, or the model call failed.
        """
        try:
            request = RowRequest.of({"responses_create_params": body}, Where())
            emission = await self._in_pool(self._emitter.emit, request.conversation)
            episode = await run_episode(emission.messages, model=self._model(request, model_path),
                                        environment=SingleTurn())  # fmt: skip
        except NemoGymVideoError as error:
            raise HTTPException(422, str(error)) from error
        return episode.response()

    async def _in_pool[Result](self, work: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def _prepare(self, row: dict[str, Any], request: RowRequest) -> PreparedRow:
        where = row_place(row)
        emission = self._emitter.emit(request.conversation, where=where)
        return PreparedRow(request, emission, self._contracts.of_row(row, emission, where))

    def _model(self, request: RowRequest, path: str) -> ModelServer:
        return ModelServer(self._client, self._config.model_server.name, path, request.params,
                           timeout_s=self._config.model_timeout_s)  # fmt: skip

    @asynccontextmanager
    async def _session(self, row: dict[str, Any], verifier: VerifierServer) -> AsyncIterator[Sequence[Any]]:
        """The parts of the environment's first observation, in a session that is closed on every path."""
        if not self._config.multi_turn:
            yield ()
            return
        seeding = asyncio.ensure_future(verifier.post("/seed_session", row))
        try:
            # Shielded, as closing is: a rollout that is cancelled still closes what it opened, or is just opening.
            opening = await asyncio.shield(seeding)
            yield opening.get("observation") or ()
        finally:
            closing = asyncio.ensure_future(self._close(seeding, verifier))
            self._closing.add(closing)  # the event loop itself holds tasks weakly
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    async def _close(self, seeding: Awaitable[Any], verifier: VerifierServer) -> None:
        with suppress(EnvironmentFailed):  # an expired session is closed already; a dead server has none
            await seeding
            await verifier.post("/close_session", {})

    async def _open(self, parts: Sequence[Any], media: MediaRecord) -> list[Any]:
        """The message that shows the environment's first observation, with its media resolved."""
        if not parts:
            return []
        shown = await self._in_pool(self._shown, parts, 0, media)
        media.add(0, shown.emission, shown.items)
        return shown.emission.messages

    def _shown(self, parts: Sequence[Any], turn: int, media: MediaRecord) -> ShownMedia:
        message = {"type": "message", "role": "user", "content": list(parts)}
        emission = self._emitter.emit([message])
        items = self._contracts.of_observation(emission.messages, turn) if media.has_contract else ()
        return ShownMedia(emission, items)

    def _admitted(
        self, observation: Observation, episode: PlayedEpisode, request: RowRequest, media: MediaRecord
    ) -> Any:
        """The observation as it goes out, or the word that ends the episode because it does not fit any more."""
        turn = len(episode.calls)
        shown = self._shown(observation.parts, turn, media)
        if self._config.max_model_len is not None:
            used = media.tokens_after(episode, observation_items(observation), shown.items)
            reserve = request.params.get("max_output_tokens") or self._config.answer_reserve
            if used is not None and used + reserve > self._config.max_model_len:
                return TOKEN_BUDGET
        # Media and tokens of a turn are committed together: from here on the observation is part of the episode.
        media.add(turn, shown.emission, shown.items)
        parts = shown.emission.messages[0]["content"] if observation.parts else ()
        return replace(observation, parts=tuple(parts))

    async def _play(
        self, prepared: PreparedRow, seed: list[Any], verifier: VerifierServer, media: MediaRecord, model_path: str
    ) -> PlayedEpisode:
        async def admit(observation: Observation, episode: PlayedEpisode) -> Observation | str:
            admitted: Observation | str = await self._in_pool(
                self._admitted, observation, episode, prepared.request, media
            )
            return admitted

        return await run_episode(
            [*prepared.emission.messages, *seed],
            model=self._model(prepared.request, model_path),
            environment=SessionEnvironment(verifier) if self._config.multi_turn else SingleTurn(),
            max_turns=self._config.max_turns,
            admit=admit,
        )

    async def _verified(
        self, row: dict[str, Any], episode: PlayedEpisode, verifier: VerifierServer
    ) -> dict[str, Any]:
        if self._config.skip_verification:
            return {"reward": self._config.skip_verification_reward, "verification_skipped": True}
        usage = {"episode": episode.info[-1]} if episode.info else {}
        return await verifier.post("/verify", {**row, **usage, "response": episode.response()})

    async def _reported(
        self,
        row: dict[str, Any],
        result: dict[str, Any],
        episode: PlayedEpisode,
        emission: Emission,
        seed: list[Any],
        media: MediaRecord,
    ) -> dict[str, Any]:
        """The verifier's result with the raw row's messages, what the model got, and the media evidence."""
        response = {**episode.response(), "agent_input": emission.messages}
        if seed:
            # Where NeMo RL looks for the first turn's media before it looks at the input.
            response["seed_obs"] = [*emission.messages, *seed]
        result = {**row, **result, "responses_create_params": row["responses_create_params"], "response": response}
        result["termination_reason"] = episode.reason
        result.update(await self._in_pool(media.report, episode))
        if episode.failure is not None:
            result.update(cut_short(episode.failure))
        if media.untrusted is not None:
            result.update(masked(MEDIA_ALIGNMENT, media.untrusted, code="alignment.failed"))
        return result


class SessionEnvironment:
    """A multi-turn environment behind its verifier server."""

    def __init__(self, verifier: VerifierServer) -> None:
        """``verifier`` carries the session's cookies."""
        self._verifier = verifier
        self._turn = 0

    async def step(self, output: Sequence[Mapping[str, Any]]) -> Observation:
        """Post one turn's output and return what the environment says, its media as it names them."""
        # The turn is numbered because Gym's client posts again when a connection breaks.
        answer = await self._verifier.post("/step", {"output": list(output), "turn": self._turn})
        self._turn += 1
        return Observation(
            parts=tuple(answer.get("observation") or ()),
            tool_outputs=tuple((one["call_id"], one["output"]) for one in answer.get("tool_outputs") or ()),
            done=bool(answer.get("done")),
            reason=answer.get("reason"),
            info=answer.get("info") or {},
        )
