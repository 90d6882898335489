# SPDX-License-Identifier: Apache-2.0
"""The agent's two partners over Gym's HTTP client: the model server and the verifier server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import ClientError
from nemo_gym.server_utils import ServerClient

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.servers.failure import BAD_ROW
from nemo_gym_video.servers.play import EnvironmentFailed, ModelCallFailed

# Half a second apart: a server that is being restarted is waited for, one that is gone is not.
_CONNECTION_RETRIES = 20
_BODY_SHOWN = 400
# How Gym's model server says in its error that its own endpoint is gone.
_UNREACHABLE = ("Cannot connect to host", "ClientConnectorError", "ServerDisconnectedError", "ClientOSError")


class HttpError(NemoGymVideoError):
    """A server answered with an error status, or not at all (``status`` None)."""

    def __init__(self, problem: str, *, status: int | None = None, **context: Any) -> None:
        """``status`` is the HTTP status."""
        super().__init__(problem, **context)
        self.status = status


async def post_json(
    client: ServerClient, server: str, path: str, body: Any, cookies: dict[str, str], *, timeout_s: float
) -> Any:
    """POST ``body`` and return the JSON answer; cookies that come back are kept in ``cookies``.

    Raises:
        HttpError: no connection, no answer within ``timeout_s``, an error status, or an answer that is no JSON.
    """
    try:
        async with asyncio.timeout(timeout_s):
            response = await client.post(
                server_name=server,
                url_path=path,
                data=orjson.dumps(body),
                headers={"Content-Type": "application/json"},
                cookies=cookies,
                _max_connection_retries=_CONNECTION_RETRIES,
            )
            content = await response.read()
    except TimeoutError as error:
        raise HttpError(f"{server} did not answer within {timeout_s:g} s") from error
    except (ClientError, OSError) as error:
        raise HttpError(f"{server} cannot be reached ({type(error).__name__}: {error})") from error
    cookies.update({name: morsel.value for name, morsel in response.cookies.items()})
    if response.status >= HTTPStatus.BAD_REQUEST:
        shown = content[: _BODY_SHOWN * 4].decode("utf-8", "replace")[:_BODY_SHOWN]
        raise HttpError(f"{server} answered {response.status}: {shown}", status=response.status)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise HttpError(f"{server} answered with something that is no JSON") from error


class ModelServer:
    """The policy behind one model server, for one rollout."""

    def __init__(
        self, client: ServerClient, server: str, path: str, params: Mapping[str, Any], *, timeout_s: float
    ) -> None:
        """``params`` are the request's parameters besides its input."""
        self._client = client
        self._server = server
        self._path = path
        self._params = params
        self._timeout_s = timeout_s
        self._cookies: dict[str, str] = {}

    async def respond(self, messages: Sequence[Any]) -> dict[str, Any]:
        """One model call."""
        body = {**self._params, "input": list(messages)}
        try:
            response = await post_json(self._client, self._server, self._path, body, self._cookies,
                                       timeout_s=self._timeout_s)  # fmt: skip
        except HttpError as error:
            kind = _model_failure_kind(error)
            text = f"the model cannot be reached: {error}" if kind == "transport_unreachable" else str(error)
            raise ModelCallFailed(text, failure_kind=kind) from error
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise ModelCallFailed(
                f"{self._server} answered without an output list", failure_kind="agent_run_error"
            )
        return response


def _model_failure_kind(error: HttpError) -> str:
    if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return BAD_ROW
    if "did not answer within" in error.problem:
        return "transport_timeout"
    if error.status is None or any(sign in error.problem for sign in _UNREACHABLE):
        return "transport_unreachable"
    return "agent_run_error"


def _verifier_failure_kind(error: HttpError) -> str:
    if error.status is None:
        return _model_failure_kind(error)
    kinds = {HTTPStatus.UNPROCESSABLE_ENTITY: BAD_ROW, HTTPStatus.NOT_FOUND: "session_lost"}
    return kinds.get(HTTPStatus(error.status), "verifier_error")


class VerifierServer:
    """The verifier server of one rollout; its session rides on the cookies."""

    def __init__(self, client: ServerClient, server: str, cookies: Mapping[str, str], *, timeout_s: float) -> None:
        """``cookies`` are those that came with the run request."""
        self._client = client
        self._server = server
        self._cookies = dict(cookies)
        self._timeout_s = timeout_s

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        """One call; raises ``EnvironmentFailed``."""
        try:
            answer = await post_json(self._client, self._server, path, body, self._cookies,
                                     timeout_s=self._timeout_s)  # fmt: skip
        except HttpError as error:
            kind = _verifier_failure_kind(error)
            raise EnvironmentFailed(f"{path} failed: {error}", failure_kind=kind) from error
        if not isinstance(answer, dict):
            raise EnvironmentFailed(f"{path} failed: {self._server} answered with no object", got=answer)
        return answer
