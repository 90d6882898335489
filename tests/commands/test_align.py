# SPDX-License-Identifier: Apache-2.0
"""``gym-video align`` and ``gym-video sample`` as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nemo_gym_video.cli import build_app

VIDEO = {"kind": "video", "size": [1920, 1080], "frames": 64}
PROCESSOR = {"family": "nemotron_omni", "max_model_len": 32768}


def media(*lengths: int) -> list[int]:
    return [token for length in lengths for token in (19, *[18] * length, 20)]


def run(*arguments: str, lines: list[Any] | None = None) -> tuple[int, list[Any]]:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines or [])
    done = CliRunner().invoke(build_app(arguments[0]), list(arguments), input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def request(*lengths: int, items: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    contract = {"items": [VIDEO] if items is None else items, "processor": PROCESSOR}
    calls = [{"prompt_token_ids": [1, *media(*lengths), 2], "generation_token_ids": [3]}]
    return {"contract": contract, "calls": calls} | changes


def test_a_hand_written_contract_is_enough() -> None:
    code, (good, bad) = run("align", "--jsonl", lines=[request(*[252] * 32), request(*[256] * 32)])
    assert code == 0
    assert good["trustworthy"] is True
    assert good["findings"] == []
    assert (good["failure_kind"], good["reason"]) == (None, None)
    assert good["regions"][31] == {
        "turn": 0, "item": 0, "region": 31, "run_lengths": [252], "spans": [[7876, 8128]], "status": "exact",
        "provenance": "processor", "grid": [24, 42], "processed_size": [672, 384], "frames": [62, 64],
    }  # fmt: skip
    assert bad["trustworthy"] is False
    assert bad["failure_kind"] == "nemo_gym_video:media_alignment"
    (finding,) = bad["findings"]
    assert (finding["kind"], finding["expected"], finding["found"]) == ("run_length_mismatch", 8064, 8192)
    assert finding["setting"] == "video_maintain_aspect_ratio"


def test_the_reconciled_image() -> None:
    _, (answer,) = run("align", "--jsonl", lines=[request(2010, items=[{"kind": "image", "size": [2400, 1080]}])])
    assert answer["trustworthy"] is True
    (region,) = answer["regions"]
    assert (region["status"], region["provenance"], region["grid"]) == ("reconciled", "engine", [60, 134])


def test_media_of_later_calls() -> None:
    first = [1, *media(*[252] * 32), 2]
    second = [*first, 3, *media(2550), 2]
    calls: list[dict[str, Any]] = [
        {"prompt_token_ids": first, "generation_token_ids": [3]},
        {
            "prompt_token_ids": second,
            "generation_token_ids": [3],
            "items": [{"kind": "image", "size": [2400, 1080]}],
        },
    ]
    _, (answer,) = run("align", "--jsonl", lines=[request(calls=calls)])
    assert answer["trustworthy"] is True
    assert [(region["turn"], region["item"]) for region in answer["regions"]] == [(0, 0)] * 32 + [(1, 1)]
    # Not announced, it is unexpected.
    calls[1].pop("items")
    _, (answer,) = run("align", "--jsonl", lines=[request(calls=calls)])
    assert [finding["kind"] for finding in answer["findings"]] == ["run_unexpected"]


def test_media_token_ids_from_the_request() -> None:
    contract = {"items": [{"kind": "image", "regions": [{"run_lengths": [4]}]}]}
    call = {"prompt_token_ids": [1, 99, 99, 99, 99, 2]}
    good = {"contract": contract, "calls": [call], "media_token_ids": [99]}
    code, answers = run("align", "--jsonl", lines=[good, good | {"media_token_ids": None}])
    assert code == 1
    assert answers[0]["regions"][0]["status"] == "exact"
    assert "media_token_ids" in answers[1]["error"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({}, "lacks 'contract'"),
        ({"contract": {"items": []}}, "list of calls"),
        ({"contract": {"items": []}, "calls": [3]}, "list of calls"),
        ({"contract": {"items": [3]}, "calls": []}, "items"),
        ({"contract": 3, "calls": []}, "an object"),
        (request(calls=[{}]), "turn 0: call lacks 'prompt_token_ids'"),
        (request(calls=[{"prompt_token_ids": "abc"}]), "no flat list of integers"),
        (request(calls=[{"prompt_token_ids": [1.5]}]), "no flat list of integers"),
        (request(calls=[{"prompt_token_ids": [1], "token_ids": []}]), "unknown key in call"),
        (request(media_token_ids=[]), "media_token_ids"),
        (request(media_token_ids=["18"]), "media_token_ids"),
        (request(extra=1), "unknown key"),
        ("[1]", "not a JSON object"),
        ("{", "not valid JSON"),
    ],
)
def test_a_bad_line_costs_one_answer(line: Any, named: str) -> None:
    code, answers = run("align", "--jsonl", lines=[line, request(*[252] * 32)])
    assert code == 1
    assert list(answers[0]) == ["error", "code"]
    assert named in answers[0]["error"]
    assert answers[1]["trustworthy"] is True


def test_for_people(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps(request(*[256] * 32)) + "\n")
    done = CliRunner().invoke(build_app("align"), ["align", str(path)])
    assert done.exit_code == 1
    assert "to be masked" in done.stdout
    assert "video_maintain_aspect_ratio" in done.stdout


def test_sample_lines() -> None:
    good = {"convention": "nemo_rl", "total": 7, "fps": 2.0, "num_frames": 32, "temporal_patch_size": 2}
    bad: list[Any] = [
        good | {"convention": "nemorl"},
        good | {"total": 0},
        good | {"frames": 3},
        {"total": 3},
        "x",
    ]
    code, answers = run("sample", "--jsonl", lines=[*bad, good])
    assert code == 1
    assert [list(answer) for answer in answers[:-1]] == [["error", "code"]] * 5
    assert "did you mean 'nemo_rl'?" in answers[0]["error"]
    assert answers[-1] == {"indices": [0, 1, 2, 4, 5, 6], "timestamps": [0.0, 0.5, 1.0, 2.0, 2.5, 3.0]}


def test_sample_flags() -> None:
    code, (answer,) = run("sample", "--total", "100", "--fps", "30", "--num-frames", "8")
    assert code == 0
    assert answer["indices"] == [0, 14, 28, 42, 56, 70, 84, 99]
