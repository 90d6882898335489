# SPDX-License-Identifier: Apache-2.0
"""Names of assets: over content where the bytes are at hand, recorded where recorded, else over the reference."""

from __future__ import annotations

import base64
import hashlib
import random
import tracemalloc

import pytest

from nemo_gym_video.alignment.media_id import MediaRef, RecordedIds, reference_id, reference_key
from nemo_gym_video.messages import FrameManifest


def sha(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def data_url(content: bytes, head: str = "image/png") -> str:
    return f"data:{head};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize("length", [0, 1, 2, 3, 100, 196_607, 196_608, 196_609, 400_001])
def test_a_data_urls_id_is_the_digest_of_its_bytes(length: int) -> None:
    content = random.Random(length).randbytes(length)
    assert reference_id(data_url(content)) == sha(content)
    assert reference_id(data_url(content, "IMAGE/PNG;name=a.png")) == sha(content)
    assert reference_id("DATA:" + data_url(content)[5:]) == sha(content)


def test_a_percent_encoded_data_url_is_read_too() -> None:
    assert reference_id("data:text/plain,a%20b") == sha(b"a b")


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,AAA",
        "data:image/png;base64,A===",
        "data:image/png;base64,AAAA AAAA",
        "data:image/png;base64,AA==" + "AAAA" * 100_000,
        "data:image/png;base64,\ud800",
        "data:no comma",
        "data:",
    ],
)
def test_a_broken_data_url_is_known_by_its_reference(url: str) -> None:
    assert reference_id(url) == "ref:" + sha(url.encode("utf-8", "surrogatepass"))


def test_a_path_and_its_uri_are_one_reference() -> None:
    plain = reference_id("/m/a b.png")
    assert plain == "ref:" + sha(b"/m/a b.png")
    assert reference_id("file:///m/a%20b.png") == plain
    assert reference_id("file://localhost/m/a%20b.png") == plain
    assert reference_id("file://elsewhere/m/a%20b.png") != plain
    assert reference_key("http://h/a%20b.png") == "http://h/a%20b.png"
    assert reference_key("file://[/x") == "file://[/x"


def test_frames_one_by_one_are_one_asset_in_any_form() -> None:
    pictures = [b"one", b"two"]
    whole = hashlib.sha256("".join(map(sha, pictures)).encode()).hexdigest()
    urls = tuple(data_url(picture) for picture in pictures)
    assert MediaRef("video", urls, source="v.mp4", tagged=True).media_id == "sha256:" + whole
    paths = ("/m/0.png", "/m/1.png")
    by_path = MediaRef("video", paths, source="v.mp4", tagged=True).media_id
    assert by_path.startswith("ref:sha256:")
    assert MediaRef("video", (FrameManifest(frame_paths=paths).to_url(),)).media_id == by_path
    assert MediaRef("video", paths[::-1], source="v.mp4", tagged=True).media_id != by_path


def test_recorded_ids_are_found_by_what_was_sent() -> None:
    manifest = FrameManifest(frame_paths=("/m/0.png",)).to_url()
    assets = {
        "m1": {"media_id": "m1", "source_part": {"type": "input_image", "image_url": "a.png"}},
        "m2": {"media_id": "m2", "source_part": {"type": "input_video", "video_url": {"url": "file:///b.mp4"}}},
        "m3": {"media_id": "m3", "source": "c.mp4", "source_part": None},
        "m4": {"media_id": 4, "source": "d.png"},
        "m5": {"media_id": "m5", "source_part": {"image_url": "data:image/png;base64,AAAA"}},
        "m6": None,
        "m7": {"media_id": "m7", "source": "e.mp4", "source_part": {"video_url": manifest}},
        "m8": {"media_id": "m8", "source": "data:image/png", "source_part": None},
    }
    for form in (assets, list(assets.values())):
        found = RecordedIds(form)
        assert found.find("a.png", tagged=False) == "m1"
        assert found.find("/b.mp4", tagged=False) == "m2"
        assert found.find("c.mp4", tagged=True) == "m3"
        assert found.find(manifest, tagged=False) == "m7"
        # A clip and frames taken from it are two assets, whatever their source is called.
        for url in ("c.mp4", "d.png", "e.mp4", "data:image/png;base64,AAAA", "data:image/png"):
            assert found.find(url, tagged=False) is None
        assert found.find("a.png", tagged=True) is None
    later = {"media_id": "new", "source_part": {"image_url": "a.png"}}
    assert RecordedIds(assets, [later]).find("a.png", tagged=False) == "new"


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [None], {"a": []}, [{"media_id": "m", "source": 3}]])
def test_recorded_junk_is_passed_over(junk: object) -> None:
    assert RecordedIds(junk).find("x", tagged=False) is None


def test_an_id_is_worked_out_once_and_without_a_copy_of_the_picture() -> None:
    url = data_url(bytes(8 << 20))
    ref = MediaRef("image", (url,))
    tracemalloc.start()
    first = ref.media_id
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first == sha(bytes(8 << 20))
    assert peak < 2 << 20
    assert ref.media_id is first
    assert len(repr(ref)) < 200
