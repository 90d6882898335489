# SPDX-License-Identifier: Apache-2.0
"""The agent's two partners over Gym's HTTP client: the model server and the verifier server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import ClientError
from nemo_gym.server_utils import ServerClient

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.servers.gym_errors import exception_named_by
from nemo_gym_video.servers.play import EnvironmentFailed, ModelCallFailed

# Half a second apart: a server that is being restarted is waited for, one that is gone is not.
_CONNECTION_RETRIES = 20
_BODY_SHOWN = 400


class HttpError(NemoGymVideoError):
    """A server answered with an error status (``http.status``), or not at all, or not with JSON.

    ``status`` is any number from 400 on, known to ``http.HTTPStatus`` or not; None without an answer. ``content``
    is the error answer's body.
    """

    code = "http.failed"

    def __init__(
        self, problem: str, *, code: str, status: int | None = None, content: bytes = b"", **context: Any
    ) -> None:
        """``code`` is one of the ``http`` codes."""
        super().__init__(problem, code=code, **context)
        self.status = status
        self.content = content


async def post_json(
    client: ServerClient, server: str, path: str, body: Any, cookies: dict[str, str], *, timeout_s: float
) -> Any:
    """POST ``body`` and return the JSON answer; cookies that come back are kept in ``cookies``.

    Raises:
        HttpError: no connection, no answer within ``timeout_s``, an error status, or an answer without JSON.
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
        raise HttpError(f"{server} did not answer within {timeout_s:g} s", code="http.timeout") from error
    except (ClientError, OSError) as error:
        problem = f"{server} cannot be reached ({type(error).__name__}: {error})"
        raise HttpError(problem, code="http.unreachable") from error
    cookies.update({name: morsel.value for name, morsel in response.cookies.items()})
    if response.status >= 400:
        shown = content[: _BODY_SHOWN * 4].decode("utf-8", "replace")[:_BODY_SHOWN]
        raise HttpError(f"{server} answered {response.status}: {shown}", code="http.status",
                        status=response.status, content=content)  # fmt: skip
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise HttpError(f"{server} did not answer with JSON", code="http.answer") from error


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
            code = engine_code(error)
            text = f"the model cannot be reached: {error}" if code == "engine.unreachable" else str(error)
            raise ModelCallFailed(text, code=code) from error
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise ModelCallFailed(f"{self._server} answered without an output list", code="engine.answer")
        return response


# Without a status: what kept the answer from coming.
_ENGINE_CODES = {"http.timeout": "engine.timeout", "http.unreachable": "engine.unreachable",
                 "http.answer": "engine.answer"}  # fmt: skip
_VERIFIER_CODES = {"http.timeout": "verifier.timeout", "http.unreachable": "verifier.unreachable"}


def engine_code(error: HttpError) -> str:
    """What a failed call of Gym's model server says about the engine behind it.

    Statuses without a meaning of their own count as their hundred: 499 as a refusal, 520 and 529 as a failure.
    """
    status = error.status
    if status is None:
        return _ENGINE_CODES.get(error.code, "engine.failed")
    if status == 422:
        return "engine.row_refused"
    if status in (401, 403):
        return "engine.auth"
    if status < 500:
        return "engine.refused"
    exception = exception_named_by(error.content)
    if exception is None:
        return "engine.failed"
    return "engine.timeout" if issubclass(exception, TimeoutError) else "engine.unreachable"


def verifier_code(error: HttpError) -> str:
    """What a failed call of the verifier server means; statuses without a meaning of their own are a failure."""
    if error.status is None:
        return _VERIFIER_CODES.get(error.code, "verifier.failed")
    return {422: "verifier.row_refused", 404: "verifier.session_lost"}.get(error.status, "verifier.failed")


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
            raise EnvironmentFailed(f"{path} failed: {error}", code=verifier_code(error)) from error
        if not isinstance(answer, dict):
            raise EnvironmentFailed(f"{path} failed: {self._server} did not answer with an object", got=answer)
        return answer
