# SPDX-License-Identifier: Apache-2.0
"""What a failed call means, for every status, and with messages made to mislead."""

from __future__ import annotations

import asyncio
import http
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import orjson
import pytest

from nemo_gym_video.errors import MediaDecodeError, NemoGymVideoError, RowError
from nemo_gym_video.servers.clients import ModelServer, VerifierServer
from nemo_gym_video.servers.failure import cut_short, failed_row, failure_kind
from nemo_gym_video.servers.gym_errors import exception_named_by
from nemo_gym_video.servers.play import EnvironmentFailed, ModelCallFailed

MISLEADING = "policy_model did not answer within 5 s; Cannot connect to host; ServerDisconnectedError; too large"


class Reply:
    def __init__(self, status: int, content: bytes) -> None:
        self.status = status
        self.content = content
        self.cookies = SimpleCookie()

    async def read(self) -> bytes:
        return self.content


class Client:
    """Answers every POST with one reply, or raises."""

    def __init__(self, says: Reply | Exception) -> None:
        self.says = says

    async def post(self, **_: Any) -> Reply:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def engine_error(says: Reply | Exception) -> ModelCallFailed:
    server = ModelServer(Client(says), "policy_model", "/v1/responses", {}, timeout_s=5)
    with pytest.raises(ModelCallFailed) as caught:
        asyncio.run(server.respond([]))
    return caught.value


def verifier_error(says: Reply | Exception) -> EnvironmentFailed:
    server = VerifierServer(Client(says), "verifier", {}, timeout_s=5)
    with pytest.raises(EnvironmentFailed) as caught:
        asyncio.run(server.post("/step", {}))
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "engine.refused", "agent_run_error"),
        (401, "engine.auth", "agent_run_error"),
        (403, "engine.auth", "agent_run_error"),
        (404, "engine.refused", "agent_run_error"),
        (422, "engine.row_refused", "nemo_gym_video:bad_row"),
        (499, "engine.refused", "agent_run_error"),
        (500, "engine.failed", "agent_run_error"),
        (520, "engine.failed", "agent_run_error"),
        (529, "engine.failed", "agent_run_error"),
        (599, "engine.failed", "agent_run_error"),
    ],
)
def test_the_status_of_an_engine_decides_and_its_words_do_not(status: int, code: str, kind: str) -> None:
    error = engine_error(Reply(status, orjson.dumps({"detail": MISLEADING})))
    assert (error.code, failure_kind(error)) == (code, kind)
    assert f"answered {status}" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "verifier.session_lost", "session_lost"),
        (422, "verifier.row_refused", "nemo_gym_video:bad_row"),
        (499, "verifier.failed", "verifier_error"),
        (500, "verifier.failed", "verifier_error"),
        (520, "verifier.failed", "verifier_error"),
        (529, "verifier.failed", "verifier_error"),
    ],
)
def test_the_status_of_a_verifier_decides_and_its_words_do_not(status: int, code: str, kind: str) -> None:
    error = verifier_error(Reply(status, orjson.dumps({"detail": MISLEADING})))
    assert (error.code, failure_kind(error)) == (code, kind)


def test_the_odd_statuses_are_ones_that_python_does_not_know() -> None:
    known = {int(status) for status in http.HTTPStatus}
    assert known.isdisjoint({499, 520, 529, 599})


@pytest.mark.parametrize(
    ("says", "word", "kind"),
    [
        (TimeoutError(), "timeout", "transport_timeout"),
        (aiohttp.ServerDisconnectedError(), "unreachable", "transport_unreachable"),
        (ConnectionRefusedError(111, "did not answer within 5 s"), "unreachable", "transport_unreachable"),
    ],
)
def test_what_kept_an_answer_from_coming(says: Exception, word: str, kind: str) -> None:
    engine, verifier = engine_error(says), verifier_error(says)
    assert (engine.code, failure_kind(engine)) == (f"engine.{word}", kind)
    assert (verifier.code, failure_kind(verifier)) == (f"verifier.{word}", kind)


def test_an_answer_without_json_or_without_output() -> None:
    assert engine_error(Reply(200, b"<html>")).code == "engine.answer"
    assert engine_error(Reply(200, b"{}")).code == "engine.answer"
    assert verifier_error(Reply(200, b"<html>")).code == "verifier.failed"
    assert verifier_error(Reply(200, b"[]")).code == "verifier.failed"


def _refused_connection() -> aiohttp.ClientConnectorError:
    key: Any = aiohttp.client_reqrep.ConnectionKey("engine", 8000, False, True, None, None, None, None)
    return aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "Connection refused"))


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        (_refused_connection(), "engine.unreachable"),
        (aiohttp.ServerDisconnectedError(), "engine.unreachable"),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), "engine.unreachable"),
        (ConnectionResetError(104, "reset"), "engine.unreachable"),
        (aiohttp.ServerTimeoutError("read"), "engine.timeout"),
        (TimeoutError(), "engine.timeout"),
        (ValueError("Cannot connect to host; ClientConnectorError(x)"), "engine.failed"),
        (RuntimeError("ServerDisconnectedError"), "engine.failed"),
    ],
)
def test_gym_tells_of_a_broken_inner_connection_by_the_repr_of_an_exception(inner: Exception, code: str) -> None:
    # As nemo_gym.server_utils' exception middleware does it: JSONResponse(content=repr(e), status_code=500).
    assert engine_error(Reply(500, orjson.dumps(repr(inner)))).code == code


@pytest.mark.parametrize(
    "body", [b"", b"ClientConnectorError(", b'{"x": 1}', b'"ClientTimeout("', b'"ClientSession("']
)
def test_other_bodies_name_no_exception(body: bytes) -> None:
    assert exception_named_by(body) is None


def test_a_failed_row_names_its_code() -> None:
    failed = failed_row({"id": 1}, MediaDecodeError("x", code="media.too_large"))
    assert (failed["failure_kind"], failed["failure_code"]) == ("nemo_gym_video:media_decode", "media.too_large")
    assert failed["_ng_failure_terminal"] is False
    assert failed_row({}, RowError("x", code="row.json"))["_ng_failure_terminal"] is True


def test_an_episode_that_a_lost_engine_cut_short_is_masked_and_one_that_it_refused_is_not() -> None:
    lost: NemoGymVideoError = ModelCallFailed("x", code="engine.timeout")
    assert cut_short(lost)["mask_sample"] is True
    refused = cut_short(ModelCallFailed("x", code="engine.prompt_too_long"))
    assert "mask_sample" not in refused
    assert refused["failure_code"] == "engine.prompt_too_long"
