# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.clip_explorer.requests import (
    REQUEST_FORMS,
    TOOLS,
    BadRequest,
    ClipRequest,
    CropRequest,
    FramesRequest,
    read_call,
    read_text,
)


@pytest.mark.parametrize(
    ("text", "request_read"),
    [
        ('<request>{"clip": {"start": 1, "end": 2.5, "fps": 4}}</request>', ClipRequest(1.0, 2.5, 4.0)),
        ('<request>{"clip": {"start": 1, "end": 2}}</request>', ClipRequest(1.0, 2.0)),
        ('<request>{"frames": {"times": [1, 2.5]}}</request>', FramesRequest((1.0, 2.5))),
        (
            '<request>{"crop": {"time": 3, "box": [0, 0, 500, 1000]}}</request>',
            CropRequest(3.0, (0, 0, 500, 1000)),
        ),
        ('a <request>no</request> b <request> {"frames": {"times": [1]}} </request> c', FramesRequest((1.0,))),
    ],
)
def test_requests_in_text(text: str, request_read: object) -> None:
    assert read_text(text) == request_read


@pytest.mark.parametrize("form", REQUEST_FORMS)
def test_the_forms_that_prompts_show_are_read(form: str) -> None:
    assert not isinstance(read_text(form), BadRequest)


@pytest.mark.parametrize("text", ["", "no request", "<request>{}", "</request>", "</request><request>"])
def test_no_closed_request_is_no_request(text: str) -> None:
    assert read_text(text) is None


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[]",
        "nonsense",
        '{"clip": 3}',
        '{"clip": {}}',
        '{"clip": {"start": 2, "end": 1}}',
        '{"clip": {"start": 1, "end": 1}}',
        '{"clip": {"start": true, "end": 2}}',
        '{"clip": {"start": "1", "end": 2}}',
        '{"clip": {"start": NaN, "end": 2}}',
        '{"clip": {"start": 0, "end": 1e999}}',
        '{"clip": {"start": 0, "end": 1, "fps": 0}}',
        '{"clip": {"start": 0, "end": 1, "fps": "fast"}}',
        '{"clip": {"start": 0, "end": 1}, "frames": {"times": [1]}}',
        '{"frames": {"times": []}}',
        '{"frames": {"times": "1,2"}}',
        '{"frames": {"times": [1, null]}}',
        '{"crop": {"time": 1, "box": [0, 0, 10]}}',
        '{"crop": {"time": 1, "box": [10, 0, 10, 10]}}',
        '{"crop": {"time": 1, "box": [0, 0, 10, 1001]}}',
        '{"delete": {"all": true}}',
        "[" * 4000,
        '{"clip": {"start": ' + "9" * 3000 + ', "end": 1}}',
        '{"frames": {"times": [' + ",".join(["1"] * 5000) + "]}}",
    ],
)
def test_malformed_requests_give_advice(body: str) -> None:
    request = read_text(f"<request>{body}</request>")
    assert isinstance(request, BadRequest)
    assert 0 < len(request.advice) < 200


def test_tool_calls_are_the_same_requests() -> None:
    call = {"type": "function_call", "name": "clip", "arguments": json.dumps({"start": 0, "end": 2, "fps": 2})}
    assert read_call(call) == ClipRequest(0.0, 2.0, 2.0)
    assert {tool["name"] for tool in TOOLS} == {"clip", "frames", "crop"}


@pytest.mark.parametrize("arguments", [None, 5, "", "{", '"clip"', "[1]"])
def test_malformed_tool_arguments_give_advice(arguments: object) -> None:
    assert isinstance(read_call({"type": "function_call", "name": "clip", "arguments": arguments}), BadRequest)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_read_without_an_exception(before: str, inside: str) -> None:
    read_text(f"{before}<request>{inside}</request>")
    read_text(before + inside)
