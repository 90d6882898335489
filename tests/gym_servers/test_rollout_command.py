# SPDX-License-Identifier: Apache-2.0
"""``gym-video rollout`` as a person runs it: bad rows, dead models, interruptions, and what is left behind."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.messages import FrameManifest

pytestmark = pytest.mark.servers

AGENT = {"type": "responses_api_agents", "name": "mcqa_simple_agent"}
TEXT = {"type": "input_text", "text": "Which colour? Put the letter in \\boxed{}."}
CAPRL = ("rollout", "--environment", "caprl_mcqa", "--input")


def row(*parts: Any, answer: str = "B", agent: Any = AGENT) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": [*parts, TEXT]}]},
        "options": [{"A": "red"}, {"B": "blue"}],
        "expected_answer": answer,
        "agent_ref": agent,
    }


def still(name: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": name, "detail": "auto"}


def frames(count: int = 64) -> list[dict[str, Any]]:
    tags = {"_is_video_frame": True, "_video_source": "clips/cat.mp4"}
    return [{**still(f"{index}.png"), **tags} for index in range(count)]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_rows_are_named_and_harm_no_other(
    command: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path
) -> None:
    engine = fake_vllm()
    rows = rows_file([
        row(*frames()),
        row(still("gone.png")),
        '{"responses_create_params": ',
        row(still("1.png"), agent={"name": "nobody"}),
        row(still("1.png"), answer="Z"),
        row(still("2.png"), answer="A"),
    ])  # fmt: skip
    output = tmp_path / "out"
    done = command(*CAPRL, rows, "--model-url", engine.url, "--num-repeats", "2", output=output)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("rows.jsonl:")]
    assert sorted(line.split(":")[1].split(",")[0] for line in said) == ["2", "3", "4", "5"]
    assert "rows.jsonl:2, message 0, part 0: file cannot be opened" in done.stderr
    assert "rows.jsonl:3: not valid JSON" in done.stderr
    assert "rows.jsonl:4: agent is unknown; got 'nobody'; allowed: mcqa_simple_agent" in done.stderr
    assert "rows.jsonl:5: field 'expected_answer': expected_answer is not one of the options" in done.stderr
    measured = [one for one in read(output / "rollouts.jsonl") if not one["mask_sample"]]
    assert sorted(one["reward"] for one in measured) == [0.0, 0.0, 1.0, 1.0]
    assert len(read(output / "failures.jsonl")) == 4
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    _frames_went_as_one_video(engine, measured)


def _frames_went_as_one_video(engine: Any, rollouts: list[dict[str, Any]]) -> None:
    media = [[part for part in request["messages"][0]["content"] if part["type"] != "text"]
             for request in engine.requests()]  # fmt: skip
    videos = [parts for parts in media if parts[0]["type"] == "video_url"]
    assert [len(parts) for parts in videos] == [1, 1]
    manifest = FrameManifest.from_url(videos[0][0]["video_url"]["url"])
    assert [Path(path).name for path in manifest.frame_paths] == [f"{index}.png" for index in range(64)]
    (asset,) = next(one["media_assets"] for one in rollouts if one["media_mode"] == "tagged_frames").values()
    assert (asset["source"], asset["kind"], asset["frames"]) == ("clips/cat.mp4", "video", 64)


def test_a_model_that_is_not_there_is_said_at_once(command: Any, rows_file: Any, tmp_path: Path) -> None:
    rows = rows_file([row(still("1.png"))])
    started = time.monotonic()
    done = command(*CAPRL, rows, "--model-url", "http://127.0.0.1:9/v1", output=tmp_path / "out")
    assert done.returncode == 1
    assert "model endpoint cannot be used" in done.stderr
    assert "http://127.0.0.1:9/v1" in done.stderr
    assert time.monotonic() - started < 60


def test_a_model_that_dies_fails_its_rows_and_no_more(
    background: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path, leftovers: Any
) -> None:
    engine = fake_vllm("--delay", "0.5")
    rows = rows_file([row(still(f"{index}.png")) for index in range(12)])
    output = tmp_path / "out"
    with background(*CAPRL, rows, "--model-url", engine.url, "--concurrency", "2", output=output) as process:
        _wait_until(lambda: len(engine.requests()) >= 4)
        engine.kill()
        _, said = process.communicate(timeout=150)
        assert process.returncode == 1
    kinds = {one["kind"] for one in read(output / "failures.jsonl")}
    assert kinds == {"transport_unreachable"}
    assert "rows.jsonl:12: " in said
    assert 1 <= len(read(output / "rollouts.jsonl")) < 12
    assert leftovers(output) == []


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(
    background: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path, leftovers: Any, signal_number: int
) -> None:
    engine = fake_vllm("--delay", "30")
    rows = rows_file([row(still("1.png"))])
    output = tmp_path / "out"
    with background(*CAPRL, rows, "--model-url", engine.url, output=output) as process:
        _wait_until(engine.requests)
        assert leftovers(output) != []
        process.send_signal(signal_number)
        process.communicate(timeout=30)
        assert process.returncode in (130, 143)
    assert leftovers(output) == []


def test_a_killed_run_takes_its_servers_along(
    background: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path, leftovers: Any
) -> None:
    engine = fake_vllm("--delay", "30")
    rows = rows_file([row(still("1.png"))])
    output = tmp_path / "out"
    with background(*CAPRL, rows, "--model-url", engine.url, output=output) as process:
        _wait_until(engine.requests)
        process.kill()
        process.communicate()
        _wait_until(lambda: leftovers(output) == [], seconds=20)


def test_a_start_that_cannot_succeed_says_why(
    command: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path
) -> None:
    engine = fake_vllm()
    rows = rows_file([row(still("1.png"))])
    options = ("--model-url", engine.url, "--processor", "no_such_processor")
    started = time.monotonic()
    done = command(*CAPRL, rows, *options, output=tmp_path / "out")
    assert done.returncode == 1
    assert "server mcqa_simple_agent ended while starting" in done.stderr
    assert "no_such_processor" in done.stderr
    assert time.monotonic() - started < 120


def test_two_runs_side_by_side(background: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path) -> None:
    engine = fake_vllm()
    rows = rows_file([row(still(f"{index}.png")) for index in range(4)])
    options = (*CAPRL, rows, "--model-url", engine.url)
    with (
        background(*options, output=tmp_path / "one") as one,
        background(*options, output=tmp_path / "two") as two,
    ):
        for process in (one, two):
            process.communicate(timeout=200)
            assert process.returncode == 0
    for name in ("one", "two"):
        assert [rollout["reward"] for rollout in read(tmp_path / name / "rollouts.jsonl")] == [1.0] * 4


def test_a_wrong_count_of_the_engine_masks_the_sample(
    command: Any, fake_vllm: Any, rows_file: Any, tmp_path: Path
) -> None:
    engine = fake_vllm("--tokens", "256")
    rows = rows_file([row(*frames())])
    options = ("--model-url", engine.url, "--processor", "nemotron_omni")
    done = command(*CAPRL, rows, *options, output=tmp_path / "out")
    assert done.returncode == 1
    assert "rows.jsonl:1: run_length_mismatch" in done.stderr
    (rollout,) = read(tmp_path / "out" / "rollouts.jsonl")
    assert (rollout["mask_sample"], rollout["failure_kind"]) == (True, "nemo_gym_video:media_alignment")


def _wait_until(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
