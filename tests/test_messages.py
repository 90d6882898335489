# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.messages import (
    CACHED_FRAMES_MAGIC,
    CACHED_FRAMES_PREFIX,
    FrameManifest,
    group_media,
    is_manifest_url,
    iter_media_parts,
    media_mode,
    short_url,
)


def frame(source: str, index: int) -> dict[str, Any]:
    return {
        "type": "input_image",
        "image_url": f"frames/{index}.png",
        "_is_video_frame": True,
        "_video_source": source,
        "_video_frame_index": index,
    }


def still(url: str = "a.png") -> dict[str, Any]:
    return {"type": "input_image", "image_url": url}


def text(words: str = "look") -> dict[str, Any]:
    return {"type": "input_text", "text": words}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def read(*messages: object) -> list[tuple[str, int, str]]:
    groups = group_media(iter_media_parts(list(messages)))
    return [(group.kind, len(group.parts), group.source) for group in groups]


def test_tagged_frames_of_one_source_are_one_video() -> None:
    assert read(user(*[frame("v.mp4", i) for i in range(64)], text())) == [("video", 64, "v.mp4")]


def test_labels_between_tagged_frames_do_not_part_them() -> None:
    assert read(user(text("0 s"), frame("v.mp4", 0), text("1 s"), frame("v.mp4", 1))) == [("video", 2, "v.mp4")]


def test_two_sources_are_two_videos() -> None:
    assert read(user(frame("a", 0), frame("a", 1), frame("b", 0))) == [("video", 2, "a"), ("video", 1, "b")]


def test_a_still_between_parts_one_source() -> None:
    assert [kind for kind, _, _ in read(user(frame("a", 0), still(), frame("a", 1)))] == [
        "video",
        "image",
        "video",
    ]


def test_the_same_source_in_another_message_is_another_video() -> None:
    assert len(read(user(frame("a", 0)), user(frame("a", 1)))) == 2


def test_plain_and_nested_urls() -> None:
    video = {"type": "input_video", "video_url": {"url": "v.mp4"}}
    assert read(user(video, still())) == [("video", 1, "v.mp4"), ("image", 1, "a.png")]


def test_strings_are_never_media() -> None:
    tool = {"type": "function_call_output", "call_id": "c", "output": "https://example.test/cat.png"}
    assert (
        read(tool, user(text("data:image/png;base64,AAAA"), {"type": "input_text", "text": "file:///a.png"})) == []
    )
    assert list(iter_media_parts("file:///a.png")) == []


def test_lists_in_tool_outputs_are_read() -> None:
    parts = list(iter_media_parts([{"type": "function_call_output", "call_id": "c", "output": [still()]}]))
    assert [(part.role, part.url) for part in parts] == [("tool", "a.png")]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image"},
        {"type": "input_image", "image_url": ""},
        {"type": "input_image", "image_url": 5},
        {"type": "input_image", "image_url": {"uri": "a"}},
        {"type": "input_image", "image_url": "a", "image": "b"},
        {"type": "input_image", "file_id": "f"},
        {"type": "input_video", "video_url": "a", "video": "b"},
        {"type": "input_image", "image_url": "a", "_is_video_frame": "yes", "_video_source": "v"},
        {"type": "input_image", "image_url": "a", "_is_video_frame": True},
        {"type": "input_image", "image_url": "a", "_is_video_frame": True, "_video_source": ""},
        frame("v", 0) | {"_video_frame_index": "0"},
    ],
)
def test_malformed_parts_are_refused_with_their_place(part: dict[str, Any]) -> None:
    with pytest.raises(RowError, match=r"rows\.jsonl:7, message 1, part 1"):
        list(iter_media_parts([user(text()), user(text(), part)], where=Where(file="rows.jsonl", line=7)))


@pytest.mark.parametrize(
    ("parts", "mode"),
    [
        ([], "none"),
        ([still()], "images"),
        ([{"type": "input_video", "video_url": "v"}, still()], "native_video"),
        ([frame("v", 0), still()], "tagged_frames"),
    ],
)
def test_media_mode(parts: list[dict[str, Any]], mode: str) -> None:
    assert media_mode(group_media(iter_media_parts([user(*parts)]))) == mode


def test_manifest_is_read_back() -> None:
    manifest = FrameManifest(frame_paths=("/m/a b.png", "/m/ü.png"), fps=2.0)
    url = manifest.to_url()
    assert is_manifest_url(url)
    assert FrameManifest.from_url(url) == manifest
    payload = base64.b64decode(url.removeprefix(CACHED_FRAMES_PREFIX))
    assert payload.startswith(CACHED_FRAMES_MAGIC)
    body = json.loads(payload.removeprefix(CACHED_FRAMES_MAGIC))
    assert body["metadata"] == {
        "fps": 2.0,
        "duration": 1.0,
        "total_num_frames": 2,
        "frames_indices": [0, 1],
        "video_backend": "nemo_gym_video",
        "do_sample_frames": False,
    }


def manifest_url(body: object, *, magic: bytes = CACHED_FRAMES_MAGIC) -> str:
    return CACHED_FRAMES_PREFIX + base64.b64encode(magic + json.dumps(body).encode()).decode()


@pytest.mark.parametrize(
    "url",
    [
        "data:video/mp4;base64,AAAA",
        CACHED_FRAMES_PREFIX,
        CACHED_FRAMES_PREFIX + "!!!!",
        CACHED_FRAMES_PREFIX + "A" * (5 << 20),
        manifest_url({"frame_paths": ["a"], "metadata": {}}, magic=b"OTHER\n"),
        manifest_url([]),
        manifest_url({"frame_paths": [], "metadata": {}}),
        manifest_url({"frame_paths": [1], "metadata": {}}),
        manifest_url({"frame_paths": ["a"]}),
        manifest_url({"frame_paths": ["a"], "metadata": {"fps": 0}}),
        manifest_url({"frame_paths": ["a"], "metadata": {"fps": True}}),
        manifest_url({"frame_paths": ["a"], "metadata": {"total_num_frames": 2}}),
        CACHED_FRAMES_PREFIX + base64.b64encode(CACHED_FRAMES_MAGIC + b"[" * 100_000).decode(),
    ],
)
def test_broken_manifests_are_refused(url: str) -> None:
    with pytest.raises(RowError):
        FrameManifest.from_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("file:///a.png", "file:///a.png"),
        ("data:image/png;base64,AAAA", "data:image/png"),
        ("DATA:image/png,AAAA", "DATA:image/png"),
        ("data:,x", "data:"),
    ],
)
def test_data_urls_are_cut_after_their_media_type(url: str, shown: str) -> None:
    assert short_url(url) == shown
