# SPDX-License-Identifier: Apache-2.0
"""What ``rollout --model-url`` says about an endpoint before any server is started."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.launch.collection import probe_endpoint

MODELS = json.dumps({"data": [{"id": "omni"}]}).encode()


@contextmanager
def endpoint(*, status: int = 200, body: bytes = MODELS, key: str | None = None) -> Iterator[str]:
    """A server whose ``/v1/models`` answers so; every other path is 404. Gives its root URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code = status if self.path == "/v1/models" else 404
            if code == 200 and key is not None and self.headers["Authorization"] != f"Bearer {key}":
                code = 401
            self.send_response(code, "x")
            self.end_headers()
            self.wfile.write(body if code == 200 else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def refused(url: str, *, api_key: str = "EMPTY") -> ServerStartError:
    with pytest.raises(ServerStartError) as caught:
        probe_endpoint(url, api_key=api_key)
    return caught.value


def test_the_models_are_listed() -> None:
    with endpoint() as url:
        assert probe_endpoint(f"{url}/v1") == ("omni",)
        assert probe_endpoint(f"{url}/v1/") == ("omni",)


def test_a_url_without_v1_is_told_so_at_once() -> None:
    with endpoint() as url:
        error = refused(url)
    assert error.code == "engine.url"
    assert "answers 404 to GET /models" in str(error)
    assert str(error).endswith("to fix: add /v1 to the URL")


def test_a_404_below_v1_does_not_advise_another_v1() -> None:
    with endpoint() as url:
        error = refused(f"{url}/other/v1")
    assert (error.code, error.remedy) == ("engine.url", None)


def test_a_key_that_is_refused_and_one_that_is_taken() -> None:
    with endpoint(key="secret") as url:
        error = refused(f"{url}/v1", api_key="wrong")
        assert probe_endpoint(f"{url}/v1", api_key="secret") == ("omni",)
    assert error.code == "engine.auth"
    assert "POLICY_API_KEY" in str(error)
    assert "wrong" not in str(error)


@pytest.mark.parametrize("status", [400, 403, 405, 499, 500, 503, 520, 529])
def test_other_statuses_are_named(status: int) -> None:
    with endpoint(status=status) as url:
        error = refused(f"{url}/v1")
    assert error.code == ("engine.auth" if status == 403 else "engine.http")
    assert f"answers {status}" in str(error)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"data": 3}'])
def test_an_answer_that_lists_no_models(body: bytes) -> None:
    with endpoint(body=body) as url:
        error = refused(f"{url}/v1")
    assert error.code == "engine.url"


def test_nothing_listens() -> None:
    assert refused("http://127.0.0.1:9/v1").code == "engine.unreachable"
    assert refused("ftp://127.0.0.1/v1").code == "engine.url"
