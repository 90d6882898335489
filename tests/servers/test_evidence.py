# SPDX-License-Identifier: Apache-2.0
"""What a result says about its media: counts read from token ids, and what becomes of a disagreement."""

import json
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.alignment import index_turns
from nemo_gym_video.contract import RowContract, build_contract
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.servers.emit import Emitter
from nemo_gym_video.servers.evidence import MediaRecord
from nemo_gym_video.servers.play import Call, PlayedEpisode

MEDIA = 18
TEXT = {"type": "input_text", "text": "What happens?"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> MediaSources:
    root = tmp_path_factory.mktemp("media")
    for index in range(64):
        Image.new("RGB", (1920, 1080), (index, 9, 9)).save(root / f"{index}.jpg", quality=10)
    for index in range(16):
        Image.new("RGB", (2400, 1080), (index, 90, 9)).save(root / f"wide{index}.jpg", quality=10)
    return MediaSources(SourcePolicy((root,)))


def frame(index: int) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"{index}.jpg", "_is_video_frame": True, "_video_source": "c.mp4"}


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": [*parts, TEXT]}]


VIDEO = user(*(frame(index) for index in range(64)))


def prompt_of(*runs: int, prefix: tuple[int, ...] = ()) -> list[int]:
    """Token ids with the given runs between text."""
    ids = [*prefix, 1]
    for length in runs:
        ids += [5, *[MEDIA] * length, 6]
    return [*ids, 2]


def call(number: int, prompt: list[int] | None, generated: tuple[int, ...] = (7, 8)) -> Call:
    return Call(messages=1, response={"id": f"resp_{number}"}, prompt_token_ids=prompt,
                generation_token_ids=generated)  # fmt: skip


def record(sources: MediaSources, messages: list[Any], *, carried: Any = None, **options: Any) -> MediaRecord:
    contract = build_contract(messages, sources=sources, settings=load_settings("nemotron_omni"), **options)
    media = MediaRecord(contract, carried)
    media.add(0, Emitter(sources).emit(messages))
    return media


def report(media: MediaRecord, *calls: Call) -> dict[str, Any]:
    told = media.report(PlayedEpisode(messages=[], calls=list(calls)))
    return dict(json.loads(json.dumps(told)))


def test_a_video_has_its_tubelets_runs(sources: MediaSources) -> None:
    prompt = prompt_of(*[252] * 32)
    media = record(sources, VIDEO)
    told = report(media, call(1, prompt))
    (occurrence,) = told["media_occurrences"]
    sidecars = occurrence["model_specific_sidecars"]
    assert sidecars["run_lengths"] == [252] * 32
    assert all(prompt[start:end] == [MEDIA] * 252 for start, end in sidecars["spans"])
    assert (sidecars["provenance"], sidecars["status"], sidecars["form"]) == ("processor", "exact", "manifest")
    assert occurrence["placeholder_span_or_position"] == [sidecars["spans"][0][0], sidecars["spans"][-1][1]]
    assert (told["media_tokens"], told["media_mode"], told["media_findings"]) == (8064, "tagged_frames", [])
    assert media.untrusted is None
    (asset,) = told["media_assets"].values()
    assert (asset["source"], asset["frames"], asset["media_id"]) == ("c.mp4", 64, occurrence["media_id"])


def test_a_video_that_the_engine_counted_otherwise_is_not_to_be_trusted(sources: MediaSources) -> None:
    media = record(sources, VIDEO)
    told = report(media, call(1, prompt_of(*[256] * 32)))
    assert media.untrusted is not None
    assert "8192" in media.untrusted
    assert "8064" in media.untrusted
    assert "video_maintain_aspect_ratio" in media.untrusted
    assert [finding["kind"] for finding in told["media_findings"]] == ["run_length_mismatch"]


def test_images_that_the_engine_shrank_keep_its_count(sources: MediaSources) -> None:
    messages = user(*({"type": "input_image", "image_url": f"wide{index}.jpg"} for index in range(16)))
    media = record(sources, messages, max_model_len=131072)
    told = report(media, call(1, prompt_of(*[2010] * 16)))
    assert media.untrusted is None
    sidecars = told["media_occurrences"][3]["model_specific_sidecars"]
    assert (sidecars["run_lengths"], sidecars["provenance"], sidecars["grid"]) == ([2010], "engine", [60, 134])


def test_without_token_ids_nothing_is_claimed(sources: MediaSources) -> None:
    media = record(sources, VIDEO)
    told = report(media, call(1, None))
    assert "media_tokens" not in told
    assert told["media_occurrences"][0]["placeholder_span_or_position"] is None
    assert media.untrusted is None


def test_without_a_processor_the_media_are_still_named(sources: MediaSources) -> None:
    media = MediaRecord(None, None)
    media.add(0, Emitter(sources).emit(VIDEO))
    told = report(media, call(1, prompt_of(*[252] * 32)))
    assert "media_contract" not in told
    assert [asset["source"] for asset in told["media_assets"].values()] == ["c.mp4"]


def test_a_carried_contract_stays_bit_for_bit(sources: MediaSources) -> None:
    carried = build_contract(VIDEO, sources=sources, settings=load_settings("nemotron_omni")).to_json()
    media = MediaRecord(RowContract.from_json(carried), carried)
    media.add(0, Emitter(sources).emit(VIDEO))
    assert report(media, call(1, prompt_of(*[252] * 32)))["media_contract"] == carried


def test_generated_media_tokens_are_found_and_not_counted(sources: MediaSources) -> None:
    media = record(sources, VIDEO)
    told = report(media, call(1, prompt_of(*[252] * 32), generated=(MEDIA, MEDIA, 7)))
    assert told["media_tokens"] == 8064
    assert [finding["kind"] for finding in told["media_findings"]] == ["generated_media_token"]
    assert media.untrusted is None


def test_what_the_environment_brings_stands_in_its_own_turn(sources: MediaSources) -> None:
    media = record(sources, user({"type": "input_image", "image_url": "0.jpg"}))
    first = call(1, prompt_of(2040))
    seen = user({"type": "input_image", "image_url": "60.jpg"}, {"type": "input_image", "image_url": "0.jpg"})
    items = build_contract(seen, sources=sources).items
    media.add(1, Emitter(sources).emit(seen), [replace(item, turn=1) for item in items])
    second = call(2, prompt_of(2040, 2040, prefix=(*(first.prompt_token_ids or ()), 7, 8)))
    told = report(media, first, second)
    assert media.untrusted is None
    assert [one["model_call_id"] for one in told["media_occurrences"]] == ["resp_1", "resp_2", "resp_2"]
    # The picture of the first turn again is a new occurrence of the same asset.
    assert len(told["media_assets"]) == 2
    assert told["media_occurrences"][0]["media_id"] == told["media_occurrences"][2]["media_id"]
    assert [len(one["media_ids"]) for one in told["model_call_metadata"]] == [1, 2]


def test_the_indexer_finds_the_same_media_by_the_recorded_ids(sources: MediaSources) -> None:
    media = record(sources, VIDEO)
    emission = Emitter(sources).emit(VIDEO)
    prompt = prompt_of(*[252] * 32)
    told = report(media, call(1, prompt))
    output = {"type": "message", "role": "assistant", "content": [], "prompt_token_ids": prompt,
              "generation_token_ids": [7]}  # fmt: skip
    rollout = {**told, "responses_create_params": {"input": VIDEO},
               "response": {"output": [output], "agent_input": emission.messages}}  # fmt: skip
    index = index_turns(rollout)
    (occurrence,) = index.turns[0].media
    recorded = told["media_occurrences"][0]
    assert occurrence.media_id == recorded["media_id"]
    assert [list(span) for span in occurrence.spans or ()] == recorded["model_specific_sidecars"]["spans"]
    assert not index.findings


def test_no_media_bytes_stand_in_the_report(sources: MediaSources) -> None:
    media = record(sources, user({"type": "input_image", "image_url": "0.jpg"}))
    text = json.dumps(report(media, call(1, prompt_of(2040))))
    assert "base64" not in text
