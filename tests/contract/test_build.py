# SPDX-License-Identifier: Apache-2.0
"""Contracts built from raw rows: what is measured, and every row that is refused."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.contract import RowContract, VideoSampling, build_contract, contract_of_row
from nemo_gym_video.errors import ContractError, MediaSourceError, NemoGymVideoError, RowError, Where
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.processors.presets import load_settings

NEMOTRON = load_settings("nemotron_omni")
TEXT = {"type": "input_text", "text": "What happens?"}
STILL = {"type": "input_image", "image_url": "still.png"}
CLIP = {"type": "input_video", "video_url": "clip.mp4"}


def frame(index: int, source: str = "walk.mp4", **changes: Any) -> dict[str, Any]:
    part = {"type": "input_image", "image_url": f"frames/{index}.png", "_is_video_frame": True}
    return part | {"_video_source": source, "_video_frame_index": index * 4} | changes


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def build(messages: Any, sources: MediaSources, **options: Any) -> RowContract:
    given: dict[str, Any] = {"settings": NEMOTRON, "max_model_len": 32768}
    return build_contract(messages, sources=sources, **given | options)


def test_stills(sources: MediaSources, media_root: Path) -> None:
    row = build([{"role": "system", "content": "Look."}, *user(TEXT, STILL, STILL)], sources)
    assert row.mode == "images"
    assert [item.size for item in row.items] == [(640, 360)] * 2
    assert row.items[0].digest == "sha256:" + hashlib.sha256((media_root / "still.png").read_bytes()).hexdigest()
    assert [(item.message, item.part, item.turn) for item in row.items] == [(1, 1, 0), (1, 2, 0)]
    assert [item.total for item in row.items] == [286, 286]  # the recorded count of 640x360
    assert row.fingerprint == NEMOTRON.fingerprint
    assert row.media_token_ids == (18,)


def test_native_video(sources: MediaSources) -> None:
    row = build(user(CLIP, TEXT), sources, sampling=VideoSampling(convention="nemo_rl", num_frames=7))
    (item,) = row.items
    assert row.mode == "native_video"
    assert (item.size, item.fps, item.total_frames, item.frames) == ((64, 48), 10.0, 40, 6)
    assert item.frame_indices == (0, 8, 16, 23, 31, 39)
    assert item.timestamps == pytest.approx((0.0, 0.8, 1.6, 2.3, 3.1, 3.9))
    assert item.decoder
    assert item.regions is not None
    assert [region.frames for region in item.regions] == [(0, 2), (2, 4), (4, 6)]


def test_sampling_follows_the_family(sources: MediaSources) -> None:
    qwen = build(user(CLIP), sources, settings=load_settings("qwen2_5_vl"))
    assert qwen.items[0].frame_indices == (0, 5, 10, 15, 20, 25, 30, 35)
    assert len(build(user(CLIP), sources).items[0].frame_indices or ()) == 32


def test_tagged_frames_are_one_video(sources: MediaSources) -> None:
    row = build(user(TEXT, *map(frame, range(6))), sources)
    (item,) = row.items
    assert row.mode == "tagged_frames"
    assert (item.kind, item.counted_as, item.source) == ("video", "video", "walk.mp4")
    assert (item.size, item.frames, item.frame_indices) == ((320, 180), 6, (0, 4, 8, 12, 16, 20))
    assert item.regions is not None
    assert len(item.regions) == 3


def test_tagged_frames_sent_as_images_keep_their_mode(sources: MediaSources) -> None:
    row = build(user(*map(frame, range(6))), sources, tagged_as="images")
    (item,) = row.items
    assert row.mode == "tagged_frames"
    assert (item.kind, item.counted_as) == ("video", "image")
    assert item.regions is not None
    assert [region.frames for region in item.regions] == [(place, place + 1) for place in range(6)]
    assert RowContract.from_json(row.to_json()) == row


def test_how_frames_are_sent_is_the_agents_business(sources: MediaSources) -> None:
    messages = user(*map(frame, range(6)))
    made = build(messages, sources)
    row = row_of(messages, media_contract=made.to_json())
    assert contract_of_row(row, sources=sources, tagged_as="video") == made
    sent = contract_of_row(row, sources=sources, tagged_as="images")
    assert sent == build(messages, sources, tagged_as="images")
    assert sent != made


def test_cached_frame_manifest(sources: MediaSources, media_root: Path) -> None:
    paths = tuple(str(media_root / "frames" / f"{index}.png") for index in range(5))
    row = build(user({"type": "input_video", "video_url": FrameManifest(frame_paths=paths).to_url()}), sources)
    (item,) = row.items
    assert row.mode == "native_video"
    assert (item.size, item.frames, item.fps, item.frame_indices) == ((320, 180), 5, 1.0, (0, 1, 2, 3, 4))
    assert item.regions is not None
    assert item.regions[-1].frames == (4, 5)
    tagged = build(user(*map(frame, range(5))), sources)
    assert tagged.items[0].digest == item.digest


def test_text_only(sources: MediaSources) -> None:
    row = build("Just a question", sources)
    assert (row.mode, row.items, row.total) == ("none", (), 0)


def test_without_a_processor_there_are_items_but_no_regions(sources: MediaSources) -> None:
    row = build_contract(user(STILL), sources=sources)
    assert row.items[0].size == (640, 360)
    assert row.items[0].regions is None
    assert row.fingerprint is None
    assert row.total is None


REFUSED = {
    "two sources": (user(frame(0), frame(1, "run.mp4")), "second source", (0, 1)),
    "not contiguous": (user(frame(0), STILL, frame(1)), "not contiguous", (0, 2)),
    "apart by another source": (user(frame(0), frame(1, "run.mp4"), frame(2)), "second source", (0, 1)),
    "still beside frames": (user(frame(0), STILL), "still image stands beside", (0, 1)),
    "video beside frames": (user(TEXT, CLIP, frame(0)), "video part stands beside", (0, 1)),
    "audio": (user(TEXT, {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}), "audio", (0, 1)),
    "chat part": (user({"type": "image_url", "image_url": {"url": "still.png"}}), "unknown type", (0, 0)),
    "placeholder": (user({"type": "input_text", "text": "an <image> here"}, STILL), "placeholder", (0, 0)),
    "wrapper": (user({"type": "input_text", "text": "</img>"}), "placeholder", (0, 0)),
    "placeholder in a string": ([{"role": "system", "content": "say <image>"}], "placeholder", (0, None)),
    "placeholder in a tool output": (
        [{"type": "function_call_output", "call_id": "1", "output": "<image>"}], "placeholder", (0, None),
    ),
    "frames of two sizes": (user(frame(0), frame(1, image_url="other.png")), "differ in size", (0, 1)),
    "out of order": (user(frame(2), frame(1)), "out of order", (0, 1)),
    "index missing": (user(frame(0), frame(1, _video_frame_index=None)), "some have none", (0, 1)),
    "tag without source": (user(frame(0, _video_source=None)), "_video_source", (0, 0)),
    "no url": (user({"type": "input_image"}), "exactly one of", (0, 0)),
    "part is no object": ([{"role": "user", "content": ["hello"]}], "no object", (0, 0)),
    "content is an object": ([{"role": "user", "content": STILL}], "neither text nor a list", (0, None)),
    "media in a tool output": (
        [{"type": "function_call_output", "call_id": "1", "output": [STILL]}], "does not reach the model", (0, 0),
    ),
    "message is no object": (["hello"], "no object", (0, None)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_rows(name: str, sources: MediaSources) -> None:
    messages, words, (message, part) = REFUSED[name]
    with pytest.raises(RowError, match=words) as caught:
        build(messages, sources, where=Where(file="rows.jsonl", line=7))
    place = caught.value.where
    assert isinstance(place, Where)
    assert (place.file, place.line, place.message, place.part) == ("rows.jsonl", 7, message, part)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("messages", [None, 3, {"role": "user"}])
def test_input_of_another_shape(messages: Any, sources: MediaSources) -> None:
    with pytest.raises(RowError, match="neither a string nor a list"):
        build(messages, sources)


def test_what_an_environment_may_allow(sources: MediaSources) -> None:
    row = build(user(STILL, frame(0), frame(1)), sources, allow_mixed=True)
    assert (row.mode, [item.kind for item in row.items]) == ("tagged_frames", ["image", "video"])
    row = build(user(frame(0), frame(1, "run.mp4")), sources, allow_many_sources=True)
    assert [item.source for item in row.items] == ["walk.mp4", "run.mp4"]
    with pytest.raises(RowError, match="video part stands beside"):
        build(user(CLIP, frame(0)), sources, allow_mixed=True, allow_many_sources=True)


def test_the_processor_says_which_strings_are_placeholders(sources: MediaSources) -> None:
    text = user({"type": "input_text", "text": "<|video_pad|>"})
    assert build(text, sources).mode == "none"
    with pytest.raises(RowError, match="placeholder"):
        build(text, sources, settings=load_settings("qwen3_vl"))
    with pytest.raises(RowError, match="placeholder"):
        build(text, sources, settings=None)


def test_one_source_in_two_messages_is_two_videos(sources: MediaSources) -> None:
    row = build([*user(frame(0), frame(1)), *user(frame(2), frame(3))], sources)
    assert [(item.message, item.frames) for item in row.items] == [(0, 2), (1, 2)]
    with pytest.raises(RowError, match="not contiguous"):
        build(user(frame(0), frame(1, "run.mp4"), frame(2)), sources, allow_many_sources=True)


def test_media_goes_through_the_source_policy(sources: MediaSources) -> None:
    with pytest.raises(MediaSourceError, match="message 0, part 0"):
        build(user({"type": "input_image", "image_url": "https://example.org/a.png"}), sources)
    with pytest.raises(MediaSourceError, match="message 0, part 1"):
        build(user(frame(0), frame(1, image_url="/etc/passwd")), sources)
    outside = FrameManifest(frame_paths=("/etc/passwd",)).to_url()
    with pytest.raises(MediaSourceError):
        build(user({"type": "input_video", "video_url": outside}), sources)
    # Text is text, whatever it looks like.
    assert build("https://example.org/a.png", sources).mode == "none"


def test_media_that_does_not_fit_the_context(sources: MediaSources) -> None:
    with pytest.raises(RowError, match="does not fit the context"):
        build(user(CLIP), sources, max_model_len=2048)


def row_of(messages: Any, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": messages}} | fields


def test_a_carried_contract_is_kept(sources: MediaSources) -> None:
    messages = user(CLIP, TEXT)
    made = build(messages, sources, sampling=VideoSampling(num_frames=4))
    row = row_of(messages, media_contract=made.to_json())
    assert contract_of_row(row, sources=sources) == made
    # Other settings at run time do not change what the row was prepared with.
    assert contract_of_row(row, sources=sources, settings=load_settings("qwen3_vl")) == made


def test_a_row_without_a_contract_gets_one_when_a_processor_is_configured(sources: MediaSources) -> None:
    assert contract_of_row(row_of(user(STILL)), sources=sources) is None
    made = contract_of_row(row_of(user(STILL)), sources=sources, settings=NEMOTRON)
    assert made is not None
    assert made.total == 286


def test_a_contract_without_counts_gets_them(sources: MediaSources) -> None:
    row = row_of(user(STILL), media_contract=build_contract(user(STILL), sources=sources).to_json())
    made = contract_of_row(row, sources=sources, settings=NEMOTRON)
    assert made is not None
    assert made.total == 286


def test_placeholders_in_the_instructions(sources: MediaSources) -> None:
    row = row_of("hello")
    row["responses_create_params"]["instructions"] = "Look at <image>."
    with pytest.raises(RowError, match="field 'instructions': text holds a literal media placeholder"):
        contract_of_row(row, sources=sources, settings=NEMOTRON)
    row["responses_create_params"]["instructions"] = "Look at the image."
    assert contract_of_row(row, sources=sources, settings=NEMOTRON) is not None


CHANGES = {
    "text": user(CLIP, {"type": "input_text", "text": "What happened?"}),
    "other media": user({"type": "input_video", "video_url": "other.mp4"}, TEXT),
    "order": user(TEXT, CLIP),
    "one more": [*user(CLIP, TEXT), {"role": "user", "content": "and?"}],
    "role": [{"role": "system", "content": [CLIP, TEXT]}],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_messages_are_refused(name: str, sources: MediaSources) -> None:
    made = build(user(CLIP, TEXT), sources)
    with pytest.raises(ContractError, match="messages were changed"):
        contract_of_row(row_of(CHANGES[name], media_contract=made.to_json()), sources=sources)


def test_lost_frame_tags_are_refused(sources: MediaSources) -> None:
    messages = user(*map(frame, range(3)))
    made = build(messages, sources)
    made.check_messages(messages)
    bare = user(*({"type": "input_image", "image_url": f"frames/{index}.png"} for index in range(3)))
    with pytest.raises(ContractError, match="messages were changed"):
        made.check_messages(bare)


def test_spelling_does_not_matter(sources: MediaSources) -> None:
    made = build("What happens?", sources)
    made.check_messages([{"role": "user", "content": "What happens?", "type": "message"}])
    made.check_messages(user(TEXT))
    still = build(user(STILL), sources)
    still.check_messages(user({"type": "input_image", "image_url": {"url": "still.png"}, "detail": "auto"}))


def test_a_contract_of_another_mode_is_refused(sources: MediaSources) -> None:
    written = build(user(STILL), sources).to_json()
    written["mode"] = "native_video"
    with pytest.raises(ContractError, match="another media mode"):
        contract_of_row(row_of(user(STILL), media_contract=written), sources=sources)


@pytest.mark.parametrize("messages", [None, 3, {"role": "user"}])
def test_a_carried_contract_with_input_of_another_shape(messages: Any, sources: MediaSources) -> None:
    written = build("hello", sources).to_json()
    with pytest.raises(RowError, match="neither a string nor a list"):
        contract_of_row(row_of(messages, media_contract=written), sources=sources)


@pytest.mark.parametrize("row", [{}, {"responses_create_params": 3}, {"responses_create_params": {}}])
def test_rows_without_input(row: dict[str, Any], sources: MediaSources) -> None:
    with pytest.raises(NemoGymVideoError, match="responses_create_params"):
        contract_of_row(row, sources=sources)
