# SPDX-License-Identifier: Apache-2.0
"""``gym-video index`` as it is run: one object a line, in order, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "rollouts").glob("*.json"))
COMMAND = [sys.executable, "-c", "from nemo_gym_video.cli import main; main()", "index"]


def run(*arguments: str, stdin: bytes | str = b"", environment: dict[str, str] | None = None) -> Any:
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([*COMMAND, *arguments], input=data, capture_output=True, timeout=120, env=environment)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def lines_of(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.decode("utf-8", "surrogateescape").splitlines()]


def case(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(next(path for path in FIXTURES if path.stem == name).read_text())
    return value


def rollout(name: str) -> str:
    return json.dumps(case(name)["rollout"])


def test_every_golden_rollout_by_file_and_by_stdin(tmp_path: Path) -> None:
    cases = [json.loads(path.read_text()) for path in FIXTURES]
    cases = [one for one in cases if one["call"] == {"media_token_ids": [9]}]
    assert len(cases) >= 30
    text = "".join(json.dumps(one["rollout"]) + "\n" for one in cases)
    (tmp_path / "rollouts.jsonl").write_text(text)
    by_file = run(str(tmp_path / "rollouts.jsonl"), "--media-token-id", "9")
    assert by_file.returncode == 0
    assert run("-", "--media-token-id", "9", stdin=text).stdout == by_file.stdout
    for found, one in zip(lines_of(by_file), cases, strict=True):
        assert list(found) == ["turns", "unclaimed", "findings"]
        assert [(each["kind"], each["turn"]) for each in found["findings"]] == [
            (each["kind"], each["turn"]) for each in one["index"]["findings"]
        ]
        assert [[each["source"] for each in turn["media"]] for turn in found["turns"]] == [
            [each["source"] for each in turn["media"]] for turn in one["index"]["turns"]
        ]


def test_the_form_of_a_line() -> None:
    done = run("-", "--media-token-id", "9", stdin=rollout("media_after_last_turn"))
    (found,) = lines_of(done)
    (media,) = found["turns"][0]["media"]
    assert list(media) == [
        "kind", "media_id", "source", "frames", "role", "spans", "run_lengths", "provenance",
    ]  # fmt: skip
    assert list(found["unclaimed"][0]) == [
        "kind", "media_id", "source", "frames", "role", "run_lengths", "provenance",
    ]  # fmt: skip
    assert found["turns"][0]["turn"] == 0


def test_several_ids_and_a_processor() -> None:
    two = run("-", "--media-token-id", "8", "--media-token-id", "9", stdin=rollout("recorded_token_ids"))
    assert lines_of(two)[0]["turns"][0]["media"][1]["spans"] == [[3, 6]]
    by_name = run("-", "--processor", "nemotron_omni", stdin=rollout("two_videos_by_processor"))
    assert lines_of(by_name)[0]["findings"] == []
    unknown = run("-", "--processor", "no_such_processor", stdin=rollout("one_image"))
    assert unknown.returncode == 1
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "code"), [("one_image", 0), ("compaction_image", 1), ("run_left_over", 1)])
def test_check_fails_on_any_finding(name: str, code: int) -> None:
    assert run("-", "--media-token-id", "9", "--check", stdin=rollout(name)).returncode == code
    assert run("-", "--media-token-id", "9", stdin=rollout(name)).returncode == 0


def test_check_looks_at_every_line() -> None:
    text = "\n".join([rollout("run_left_over"), rollout("one_image")])
    assert run("-", "--media-token-id", "9", "--check", stdin=text).returncode == 1


def test_a_bad_line_is_one_error_line_and_the_rest_goes_on() -> None:
    bad = ["{", "[]", "3", '{"response": null}', '{"response": {"output": [3]}}', "[" * 100_000, '{"a": ' * 50_000,
           '{"response": {"output": [{"generation_token_ids": [1e400], "prompt_token_ids": [NaN]}]}}',
           '{"response": {"output": ' + "9" * 5000 + "}}"]  # fmt: skip
    text = "\n".join([rollout("one_image"), *bad, "", rollout("one_image")])
    done = run("-", "--media-token-id", "9", stdin=text)
    found = lines_of(done)
    assert done.returncode == 1
    assert len(found) == len(bad) + 2
    assert found[0] == found[-1]
    for number, each in enumerate(found[1:-1], start=2):
        assert list(each) == ["error", "code"]
        assert f"stdin:{number}" in each["error"]
        assert len(each["error"]) < 1000


def test_strange_characters_come_through() -> None:
    value = case("one_image")["rollout"]
    for url in ("ünï/\u2028.png", "\ud800.png", "\x00.png"):
        value["responses_create_params"]["input"][0]["content"][0]["image_url"] = url
        done = run("-", "--media-token-id", "9", stdin=json.dumps(value))
        assert done.returncode == 0
        assert done.stdout.count(b"\n") == 1
    raw = rollout("one_image").encode().replace(b"a.png", b"\xff\xfe.png")
    assert run("-", "--media-token-id", "9", stdin=raw).returncode == 0


@pytest.mark.parametrize("environment", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_output_is_utf8_in_any_locale(environment: dict[str, str]) -> None:
    value = case("one_image")["rollout"]
    value["responses_create_params"]["input"][0]["content"][0]["image_url"] = "ünï.png"
    done = run("-", stdin=json.dumps(value, ensure_ascii=False), environment=environment)
    assert done.returncode == 0
    assert lines_of(done)[0]["turns"][0]["media"][0]["source"] == "ünï.png"


@pytest.mark.parametrize("source", ["missing.jsonl", "."])
def test_no_such_file(source: str, tmp_path: Path) -> None:
    done = run(str(tmp_path / source))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_data_url_is_cut_in_the_output() -> None:
    value = case("one_image")["rollout"]
    part = value["responses_create_params"]["input"][0]["content"][0]
    part["image_url"] = "data:image/png;base64," + "A" * 3_000_000
    done = run("-", "--media-token-id", "9", stdin=json.dumps(value))
    assert len(done.stdout) < 1000
    assert lines_of(done)[0]["turns"][0]["media"][0]["source"] == "data:image/png"
