# SPDX-License-Identifier: Apache-2.0
"""The agent's HTTP surface with stand-ins for the model and verifier servers."""

import json
import runpy
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf
from PIL import Image

from nemo_gym_video.messages import FrameManifest

APP = Path(__file__).parents[1] / "app.py"
TEXT = {"type": "input_text", "text": "Which?"}


class Answer:
    """As much of an aiohttp response as the agent reads."""

    def __init__(self, body: Any, status: int = 200, cookies: str = "") -> None:
        self.content = json.dumps(body).encode()
        self.status = status
        self.cookies = SimpleCookie(cookies)

    async def read(self) -> bytes:
        return self.content


class Servers(ServerClient):  # type: ignore[misc]
    """Answers for both servers and keeps what it was asked: (server, path, body, cookies)."""

    asked: list[tuple[str, str, dict[str, Any], dict[str, str]]]
    model: Any = None

    async def request(self, server_name: str, url_path: str, method: str, **kwargs: Any) -> Any:
        body = json.loads(kwargs["data"])
        self.asked.append((server_name, url_path, body, dict(kwargs["cookies"])))
        if server_name == "policy_model":
            return self.model or Answer(response(), cookies="model=1")
        return Answer({**body, "reward": 0.5, "reason": "scored", "mask_sample": False}, cookies="session=2")


def response() -> dict[str, Any]:
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x"}],
    }
    return {"id": "resp_1", "output": [message], "usage": None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(4):
        Image.new("RGB", (16, 16), (index * 60, 0, 0)).save(tmp_path / f"{index}.png")
    return tmp_path


@pytest.fixture
def servers() -> Servers:
    return Servers(head_server_config=BaseServerConfig(host="127.0.0.1", port=0),
                   global_config_dict=OmegaConf.create({}), asked=[])  # fmt: skip


@pytest.fixture
def client(root: Path, servers: Servers) -> TestClient:
    module = runpy.run_path(str(APP))
    config = {
        "name": "agent", "host": "127.0.0.1", "port": 0, "entrypoint": "app.py", "media_roots": [str(root)],
        "media_store": str(root / "store"),
        "resources_server": {"type": "resources_servers", "name": "verifier"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }  # fmt: skip
    agent = module["VideoAgent"]
    settings = agent.model_fields["config"].annotation.model_validate(config)
    return TestClient(agent(config=settings, server_client=servers).setup_webserver(), cookies={"mine": "0"})


def frame(index: int) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"{index}.png", "detail": "auto", "_is_video_frame": True,
            "_video_source": "clip.mp4"}  # fmt: skip


def row(*parts: Any, **more: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": [*parts, TEXT]}], "temperature": 0.5}
    return {"responses_create_params": params, "_ng_task_index": 7, **more}


def test_tags_are_seen_and_the_row_comes_back_as_it_was(client: TestClient, servers: Servers) -> None:
    given = row(*(frame(index) for index in range(4)), options=[{"A": "x"}], anything={"kept": True})
    result = client.post("/run", json=given).json()
    assert result["responses_create_params"] == given["responses_create_params"]
    assert (result["media_mode"], result["reward"], result["anything"]) == ("tagged_frames", 0.5, {"kept": True})
    (asset,) = result["media_assets"].values()
    assert (asset["source"], asset["kind"], asset["frames"]) == ("clip.mp4", "video", 4)
    server, path, body, _ = servers.asked[0]
    assert (server, path, body["temperature"]) == ("policy_model", "/v1/responses", 0.5)
    video, text = body["input"][0]["content"]
    assert len(FrameManifest.from_url(video["video_url"]).frame_paths) == 4
    assert text == TEXT
    assert result["response"]["agent_input"] == body["input"]


def test_the_verifier_gets_the_row_and_the_callers_cookies(client: TestClient, servers: Servers) -> None:
    client.post("/run", json=row(frame(0), options=[{"A": "x"}]))
    server, path, body, cookies = servers.asked[1]
    assert (server, path, body["options"]) == ("verifier", "/verify", [{"A": "x"}])
    assert body["response"]["id"] == "resp_1"
    assert cookies == {"mine": "0"}


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (row({"type": "input_image", "image_url": "gone.png"}), "nemo_gym_video:media_source",
         "row 7, message 0, part 0: file cannot be opened"),
        (row({"type": "input_image", "image_url": "https://example.org/a.png"}), "nemo_gym_video:media_source",
         "row 7, message 0, part 0: https URLs are not opened"),
        (row({"type": "input_image"}), "nemo_gym_video:bad_row",
         "row 7, message 0, part 0: input_image part needs"),
        ({"_ng_task_index": 7}, "nemo_gym_video:bad_row", "row 7: row has no responses_create_params"),
        ({"_ng_task_index": 7, "responses_create_params": {"input": 3}}, "nemo_gym_video:bad_row",
         "row 7: responses_create_params has no input"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_run_is_an_answer_and_no_error(
    client: TestClient, servers: Servers, given: Any, kind: str, said: str
) -> None:
    answer = client.post("/run", json=given)
    assert answer.status_code == 200
    result = answer.json()
    assert (result["mask_sample"], result["failure_kind"], result["reward"]) == (True, kind, 0.0)
    assert result["failure_reason"].startswith(said)
    # Gym's collection puts it into its failures file.
    assert result["_ng_failure_class"] == kind
    assert result["failure_code"].startswith(("row.", "media."))
    assert servers.asked == []


def test_an_error_of_the_model_server_is_told(client: TestClient, servers: Servers) -> None:
    # As Gym's model server tells of it: repr of the exception.
    servers.model = Answer("ClientConnectorError(ConnectionKey(host='engine'), OSError(111))", status=500)
    result = client.post("/run", json=row(frame(0))).json()
    assert (result["failure_kind"], result["mask_sample"]) == ("transport_unreachable", True)
    assert result["failure_code"] == "engine.unreachable"
    servers.model = Answer("the prompt says ClientConnectorError(x); did not answer within 5 s", status=499)
    result = client.post("/run", json=row(frame(0))).json()
    assert (result["failure_kind"], result["failure_code"]) == ("agent_run_error", "engine.refused")
    servers.model = Answer({"detail": "temperature: not a number"}, status=422)
    result = client.post("/run", json=row(frame(0))).json()
    assert result["failure_kind"] == "nemo_gym_video:bad_row"
    assert "temperature: not a number" in result["failure_reason"]


def test_responses_is_one_model_call_with_media_resolved(client: TestClient, servers: Servers, root: Path) -> None:
    body = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "1.png"}, TEXT]}]}
    assert client.post("/v1/responses", json=body).json()["id"] == "resp_1"
    sent = servers.asked[0][2]["input"][0]["content"][0]
    assert sent["image_url"] == (root / "1.png").as_uri()


def test_responses_refuses_media_in_one_sentence(client: TestClient) -> None:
    answer = client.post("/v1/responses", json={"input": [{"role": "user", "content": [frame(9)]}]})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("message 0, part 0: file cannot be opened")


def test_what_is_no_json_is_refused(client: TestClient) -> None:
    assert client.post("/run", content=b"{").status_code == 400
    assert client.post("/run", content=b"[]").status_code == 400
