# SPDX-License-Identifier: Apache-2.0
"""Whole multi-turn rollouts through the agent and the real verifier apps, with a scripted model."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.prepare.synthetic.multi_turn_rows import explorer_row
from tests.servers.in_process import SAYS, Reply, World, example_rows, function_call, message

MEDIA = 18
ASK = '<request>{"clip": {"start": 1.0, "end": 1.5}}</request>'
CROP = '<request>{"crop": {"time": 1.0, "box": [0, 0, 500, 500]}}</request>'
TOO_LONG = json.dumps(
    {"id": "resp_2", "output": [message("")], "incomplete_details": {"reason": "max_output_tokens"}}
)
BOXED = "It is \\boxed{A}."


def media_runs(ids: list[int]) -> list[int]:
    """Lengths of the maximal stretches of the media id, found without the package's own code."""
    return [len(list(group)) for is_media, group in groupby(ids, key=lambda one: one == MEDIA) if is_media]


def explorer(tmp_path: Path, *script: SAYS, **agent: Any) -> World:
    return World("clip_explorer", script, tmp_path / "store", **agent)


def row(**changes: Any) -> dict[str, Any]:
    return {**example_rows("clip_explorer")[0], **changes}


def indexed_runs(result: dict[str, Any]) -> list[list[int]]:
    """Run lengths turn by turn as the indexer finds them; no finding may stand beside them."""
    index = index_turns(result)
    assert index.findings == ()
    assert index.unclaimed == ()
    return [[length for media in turn.media for length in media.run_lengths] for turn in index.turns]


def new_runs(world: World) -> list[list[int]]:
    """Run lengths that each prompt adds to the one before."""
    runs = [media_runs(prompt) for prompt in world.model.prompts]
    before = [0, *map(len, runs)]
    return [found[count:] for found, count in zip(runs, before, strict=False)]


@pytest.mark.parametrize("transport", ["manifest", "clip", "images"])
def test_every_turn_has_the_runs_of_what_it_was_shown(tmp_path: Path, transport: str) -> None:
    world = explorer(tmp_path, ASK, CROP, "not a request", BOXED)
    result = world.run(row(explorer={"transport": transport}))
    assert result["termination_reason"] == "answered"
    assert result["reward"] == 1.0
    assert not result["mask_sample"]
    assert result["media_findings"] == []
    # 8 frames of the overview, 13 of the clip; a tubelet of a video is two. A cut clip is sampled by the
    # engine, which takes whole tubelets.
    runs = {"manifest": [4, 7, 1, 0], "clip": [4, 6, 1, 0], "images": [8, 13, 1, 0]}
    assert [len(found) for found in new_runs(world)] == runs[transport]
    assert indexed_runs(result) == new_runs(world)


def test_tagged_frames_as_images_change_nothing_for_what_the_environment_shows(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, BOXED, tagged_frames="images")
    result = world.run(row())
    assert result["media_findings"] == []
    assert indexed_runs(result) == new_runs(world)
    assert [len(runs) for runs in new_runs(world)] == [4, 7]


def test_media_as_data_urls_are_counted_alike(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, CROP, BOXED, media_urls="data")
    result = world.run(row(explorer={"transport": "clip"}))
    assert result["media_findings"] == []
    assert indexed_runs(result) == new_runs(world)


def test_evidence_stands_on_the_turn_that_saw_it(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, CROP, BOXED)
    result = world.run(row())
    calls = result["model_call_metadata"]
    assert [call["model_call_id"] for call in calls] == ["resp_1", "resp_2", "resp_3"]
    assert [call["turn_id"] for call in calls] == [1, 2, 3]
    assert [len(call["media_ids"]) for call in calls] == [1, 1, 1]
    occurrences = result["media_occurrences"]
    assert [one["model_call_id"] for one in occurrences] == ["resp_1", "resp_2", "resp_3"]
    for one, call, prompt, runs in zip(occurrences, calls, world.model.prompts, new_runs(world), strict=True):
        assert [one["media_id"]] == call["media_ids"]
        assert one["occurrence_ordinal"] == 0
        assert one["media_id"] in result["media_assets"]
        start, end = one["placeholder_span_or_position"]
        assert prompt[start] == prompt[end - 1] == MEDIA
        assert prompt[start - 1] != MEDIA != prompt[end]
        sidecars = one["model_specific_sidecars"]
        assert sidecars["run_lengths"] == runs == [end - start for start, end in sidecars["spans"]]
        assert call["processor_fingerprint"] == result["processor_fingerprint"]
    assert [one["model_specific_sidecars"]["frames"] for one in occurrences] == [8, 13, 1]
    # The indexer names the same assets at the same places.
    told = [
        (media.media_id, [list(span) for span in media.spans])
        for turn in index_turns(result).turns
        for media in turn.media
    ]
    assert told == [(one["media_id"], one["model_specific_sidecars"]["spans"]) for one in occurrences]


def test_the_same_clip_asked_for_twice_is_one_asset_seen_twice(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, ASK, BOXED)
    result = world.run(row())
    ids = [one["media_id"] for one in result["media_occurrences"]]
    assert len(ids) == 3
    assert ids[1] == ids[2] != ids[0]
    assert len(result["media_assets"]) == 2
    assert indexed_runs(result) == new_runs(world)


def tool_row() -> dict[str, Any]:
    source = example_rows("clip_explorer")[0]
    content = source["responses_create_params"]["input"][0]["content"]
    asked = {"role": "user", "content": [{"type": "input_video", "video_url": source["video"]}, *content]}
    return explorer_row({**source, "responses_create_params": {"input": [asked]}}, tools=True)


def test_parallel_calls_are_answered_in_order_and_their_media_in_one_message(tmp_path: Path) -> None:
    calls = [
        function_call("c1", "clip", start=1.0, end=1.5, fps=4),
        function_call("c2", "crop", time=90.0, box=[0, 0, 500, 500]),
        function_call("c3", "frames", times=[0.5, 2.0]),
    ]
    world = explorer(tmp_path, calls, BOXED)
    result = world.run(tool_row())
    assert result["reward"] == 1.0
    output = result["response"]["output"]
    assert [item["type"] for item in output] == [*["function_call"] * 3, *["function_call_output"] * 3,
                                                 "message", "message"]  # fmt: skip
    answers = output[3:6]
    assert [item["call_id"] for item in answers] == ["c1", "c2", "c3"]
    for item in answers:
        assert len(item["output"]) < 200
        assert not item["output"].lower().startswith(("http", "file:", "data:"))
    assert "outside" in answers[1]["output"]
    assert output[6]["role"] == "user"
    kinds = [part["type"] for part in output[6]["content"] if part["type"] != "input_text"]
    assert kinds == ["input_video", "input_image", "input_image"]
    assert [len(runs) for runs in new_runs(world)] == [4, 4]
    assert indexed_runs(result) == new_runs(world)
    places = [(media.place.origin, media.place.message) for media in index_turns(result).turns[1].media]
    assert places == [("output", 6)] * 3


def test_a_call_that_only_gets_advice_brings_no_message(tmp_path: Path) -> None:
    world = explorer(tmp_path, [function_call("c1", "zoom")], "\\boxed{B} or so", BOXED)
    result = world.run(tool_row())
    assert [item["type"] for item in result["response"]["output"]] == [
        "function_call", "function_call_output", "message"
    ]  # fmt: skip
    assert result["reward"] == 0.0
    assert result["episode"]["bad_requests"] == 1


def test_an_observation_that_does_not_fit_is_not_sent(tmp_path: Path) -> None:
    full = explorer(tmp_path, ASK, BOXED)
    full.run(row())
    first, second = map(len, full.model.prompts)
    world = explorer(tmp_path, ASK, BOXED, max_model_len=(first + second) // 2, answer_reserve=0)
    result = world.run(row())
    assert result["termination_reason"] == "token_budget"
    assert len(world.model.prompts) == 1
    assert [item["role"] for item in result["response"]["output"]] == ["assistant"]
    assert not result["mask_sample"]
    assert result["reward"] == 0.0
    assert result["reason"] != "bad_row"
    # What was not sent is nobody's media.
    assert len(result["media_occurrences"]) == 1
    assert len(result["media_contract"]["items"]) == 1
    assert indexed_runs(result) == new_runs(world)


def test_an_observation_that_just_fits_is_sent(tmp_path: Path) -> None:
    full = explorer(tmp_path, ASK, BOXED)
    full.run(row())
    room = len(full.model.prompts[1]) + 200
    world = explorer(tmp_path, ASK, BOXED, max_model_len=room, answer_reserve=0)
    assert world.run(row())["termination_reason"] == "answered"


def test_turn_limits_of_environment_and_agent(tmp_path: Path) -> None:
    by_environment = explorer(tmp_path, ASK).run(row(explorer={"max_turns": 3}))
    assert by_environment["termination_reason"] == "turn_limit"
    assert by_environment["episode"]["turns"] == 3
    by_agent = explorer(tmp_path, ASK, max_turns=2).run(row())
    assert by_agent["termination_reason"] == "turn_limit"
    for result, turns in ((by_environment, 3), (by_agent, 2)):
        assert not result["mask_sample"]
        assert result["reward"] == 0.0
        assert len(index_turns(result).turns) == turns
        assert index_turns(result).unclaimed == ()


def test_a_refused_prompt_ends_the_episode_and_is_not_masked(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, (400, "prompt is too long"))
    result = world.run(row())
    assert result["termination_reason"] == "model_error"
    assert not result.get("mask_sample")
    assert "400" in result["failure_reason"]
    assert len(result["media_occurrences"]) == 1
    assert result["media_findings"] == []


def test_a_prompt_too_long_for_the_engine_ends_the_episode_with_its_evidence(tmp_path: Path) -> None:
    # What Gym's model server makes of it: an empty answer, cut off, without token ids.
    world = explorer(tmp_path, ASK, (200, TOO_LONG))
    result = world.run(row())
    assert result["termination_reason"] == "prompt_refused"
    assert not result.get("mask_sample")
    assert len(result["model_call_metadata"]) == len(result["media_occurrences"]) == 1
    assert result["media_findings"] == []
    index = index_turns(result)
    assert [len(turn.media) for turn in index.turns] == [1]
    assert [media.kind for media in index.unclaimed] == ["video"]


def test_a_lost_session_is_named(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, ASK, BOXED)
    steps = 0

    def lose(path: str) -> None:
        nonlocal steps
        steps += path == "/step"
        if steps == 2:
            assert world.server._routes is not None
            world.server._routes.sessions.close_all()

    world.client.before = lose
    result = world.run(row())
    assert result["mask_sample"] is True
    assert result["failure_kind"] == "session_lost"
    assert "expired" in result["failure_reason"]


def test_an_engine_that_cannot_be_reached_masks(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, (500, '"ClientConnectorError(ConnectionKey(), OSError())"'))
    result = world.run(row())
    assert result["termination_reason"] == "model_error"
    assert result["mask_sample"] is True
    assert result["failure_kind"] == "transport_unreachable"


@pytest.mark.parametrize("path", ["/step", "/verify", "/seed_session"])
def test_an_environment_error_masks_and_closes(tmp_path: Path, path: str) -> None:
    world = explorer(tmp_path, ASK, BOXED)
    world.client.before = lambda asked: Reply(500, b"broken") if asked == path else None
    result = world.run(row())
    assert result["mask_sample"] is True
    assert path in result["failure_reason"]
    assert result["failure_kind"] == "verifier_error"
    assert ("/close_session" in world.client.paths) is (path != "/seed_session")


def test_a_bad_row_is_told_in_a_sentence(tmp_path: Path) -> None:
    result = explorer(tmp_path, BOXED).run(row(video="nowhere.mp4"))
    assert result["mask_sample"] is True
    assert "nowhere.mp4" in result["failure_reason"]


@pytest.mark.parametrize("path", ["/seed_session", "/step", "/v1/responses", "/verify"])
def test_a_cancelled_rollout_closes_its_session(tmp_path: Path, path: str) -> None:
    world = explorer(tmp_path, ASK, BOXED)

    async def cancelled() -> None:
        task = asyncio.create_task(world.arun(row()))

        def stop(asked: str) -> None:
            if asked == path:
                task.cancel()

        world.client.before = stop
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if world.client.paths[-1] == "/close_session" and world.open_sessions == 0:
                return
            await asyncio.sleep(0.05)

    asyncio.run(cancelled())
    assert world.client.paths[-1] == "/close_session"
    assert world.open_sessions == 0


def test_stream_chunks_stand_on_their_turns(tmp_path: Path) -> None:
    source = example_rows("sav_stream")[0]
    world = World("sav_stream", ["no answer"], tmp_path / "store")
    result = world.run(source)
    urls = source["stream"]["frames"]
    size = source["stream"]["chunk"]
    chunks = [size + 1, *[size] * ((len(urls) - 1 - size) // size)]
    chunks += [len(urls) - sum(chunks)] if sum(chunks) < len(urls) else []
    assert [len(runs) for runs in new_runs(world)] == chunks
    assert indexed_runs(result) == new_runs(world)
    assert result["termination_reason"] == "all_frames_seen"
    assert {chunk["reason"] for chunk in result["chunks"]} == {"no_envelope"}
    assert not result["mask_sample"]


def test_manifests_name_files_in_the_store(tmp_path: Path) -> None:
    world = explorer(tmp_path, ASK, BOXED)
    world.run(row())
    part = world.model.inputs[1][-1]["content"][1]
    manifest = FrameManifest.from_url(part["video_url"])
    assert all(Path(path).is_relative_to(tmp_path) for path in manifest.frame_paths)


def frames_of(folder: Path, count: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index}.png" for index in range(count)]
    for index, path in enumerate(paths):
        Image.new("RGB", (64, 48), (index, 90, 9)).save(path)
    return paths


def with_media(source: dict[str, Any], *parts: dict[str, Any]) -> dict[str, Any]:
    """The row with media parts of its own before its words."""
    content = source["responses_create_params"]["input"][0]["content"]
    return {**source, "responses_create_params": {"input": [{"role": "user", "content": [*parts, *content]}]}}


@pytest.mark.parametrize(("form", "runs"), [("manifest", 2), ("images", 4)])
def test_tagged_frames_of_the_row_stand_before_what_the_environment_shows(
    tmp_path: Path, form: str, runs: int
) -> None:
    frames = frames_of(tmp_path / "store", 4)
    parts = [
        {
            "type": "input_image",
            "image_url": str(path),
            "detail": "auto",
            "_is_video_frame": True,
            "_video_source": "hint.mp4",
        }
        for path in frames
    ]
    world = explorer(tmp_path, ASK, BOXED, tagged_frames=form, allow_mixed=True)
    result = world.run(with_media(row(), *parts))
    assert result["media_mode"] == "tagged_frames"
    assert result["media_findings"] == []
    assert [len(found) for found in new_runs(world)] == [runs + 4, 7]
    assert indexed_runs(result) == new_runs(world)
    first = index_turns(result).turns[0].media
    assert [(media.kind, media.frames) for media in first] == [("video", 4), ("video", 8)]
    assert first[0].tagged is (form == "images")
    assert [media.media_id for media in first] == result["model_call_metadata"][0]["media_ids"]


def test_one_picture_by_path_uri_and_data_url_is_one_asset(tmp_path: Path) -> None:
    (picture,) = frames_of(tmp_path / "store", 1)
    digest = "sha256:" + hashlib.sha256(picture.read_bytes()).hexdigest()
    data = base64.b64encode(picture.read_bytes()).decode()
    urls = [picture.name, str(picture), picture.as_uri(), f"data:image/png;base64,{data}"]
    parts = [{"type": "input_image", "image_url": url, "detail": "auto"} for url in urls]
    world = explorer(tmp_path, ASK, BOXED)
    result = world.run(with_media(row(), *parts))
    stills = [one for one in result["media_occurrences"] if one["model_specific_sidecars"]["kind"] == "image"]
    assert [one["media_id"] for one in stills] == [digest] * 4
    assert [one["occurrence_ordinal"] for one in stills] == [0, 1, 2, 3]
    spans = [one["placeholder_span_or_position"] for one in stills]
    assert spans == sorted(spans)
    assert len({tuple(span) for span in spans}) == 4
    assert len(result["media_assets"]) == 3  # the picture, the overview, the clip
    assert "base64" not in json.dumps(result["media_assets"][digest])
    assert [media.media_id for media in index_turns(result).turns[0].media[:4]] == [digest] * 4
    assert indexed_runs(result) == new_runs(world)
