# SPDX-License-Identifier: Apache-2.0
"""What a row's media become on their way to the model server."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, RowError, Where
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.servers.emit import Emitter

FRAMES = 64


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    for index in range(FRAMES):
        Image.new("RGB", (32, 24), (index, 100, 50)).save(folder / f"{index}.png")
    (folder / "not_a_picture.png").write_text("hello")
    return folder


def emitter(root: Path, **options: Any) -> Emitter:
    return Emitter(MediaSources(SourcePolicy((root,))), **options)


def tagged(index: int, url: str | None = None, source: str = "clip.mp4") -> dict[str, Any]:
    return {"type": "input_image", "image_url": url or f"{index}.png", "detail": "auto", "_is_video_frame": True,
            "_video_source": source}  # fmt: skip


def still(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, **more}


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


TEXT = {"type": "input_text", "text": "What happens?"}


def test_tagged_frames_become_one_video_with_a_manifest(root: Path) -> None:
    emission = emitter(root).emit(user(*(tagged(index) for index in range(FRAMES)), TEXT))
    (video, text) = emission.messages[0]["content"]
    manifest = FrameManifest.from_url(video["video_url"])
    assert manifest.frame_paths == tuple(str(root / f"{index}.png") for index in range(FRAMES))
    assert text == TEXT
    (item,) = emission.items
    assert (item.source, item.frames, item.form, emission.mode) == (
        "clip.mp4",
        FRAMES,
        "manifest",
        "tagged_frames",
    )


def test_tagged_frames_as_images_stay_one_item(root: Path) -> None:
    emission = emitter(root, tagged_frames="images").emit(user(*(tagged(index) for index in range(4)), TEXT))
    parts = emission.messages[0]["content"]
    assert [part["image_url"] for part in parts[:4]] == [(root / f"{index}.png").as_uri() for index in range(4)]
    assert [item.form for item in emission.items] == ["input_images"]
    assert all("_is_video_frame" not in part for part in parts)


def test_text_between_frames_keeps_its_place(root: Path) -> None:
    label = {"type": "input_text", "text": "Frame 2:"}
    emission = emitter(root).emit(user(tagged(0), label, tagged(1), TEXT))
    assert [part["type"] for part in emission.messages[0]["content"]] == [
        "input_video",
        "input_text",
        "input_text",
    ]


def test_stills_and_labels_go_out_as_they_are(root: Path) -> None:
    label = {"type": "input_text", "text": "Frame 0:"}
    emission = emitter(root).emit(user(label, still("0.png", detail="low"), TEXT))
    assert emission.messages[0]["content"] == [
        label,
        {"type": "input_image", "image_url": (root / "0.png").as_uri(), "detail": "low"},
        TEXT,
    ]
    assert emission.mode == "images"


def test_text_without_media_is_untouched() -> None:
    messages = [{"role": "user", "content": "file:///etc/passwd and http://example.org/a.png"}]
    emission = Emitter(MediaSources(SourcePolicy())).emit(messages)
    assert emission.messages == messages
    assert emission.items == ()


def test_one_picture_is_one_asset_however_it_is_given(root: Path) -> None:
    data = (root / "3.png").read_bytes()
    data_url = "data:image/png;base64," + base64.b64encode(data).decode()
    given = [still("3.png"), still((root / "3.png").as_uri()), still(data_url)]
    ids = {item.media_id for item in emitter(root).emit(user(*given)).items}
    assert ids == {"sha256:" + hashlib.sha256(data).hexdigest()}


def test_data_urls_on_request(root: Path) -> None:
    emission = emitter(root, media_urls="data").emit(user(still("3.png")))
    head, _, body = emission.messages[0]["content"][0]["image_url"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == (root / "3.png").read_bytes()


def test_frames_as_data_urls_need_a_store(root: Path, tmp_path: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode((root / "0.png").read_bytes()).decode()
    with pytest.raises(RowError, match=r"row 7, message 0, part 0: .*media_store"):
        emitter(root).emit(user(tagged(0, url)), where=Where(row=7))
    emission = emitter(root, store=ContentStore(tmp_path)).emit(user(tagged(0, url)))
    manifest = FrameManifest.from_url(emission.messages[0]["content"][0]["video_url"])
    assert Path(manifest.frame_paths[0]).read_bytes() == (root / "0.png").read_bytes()


def test_a_manifest_in_the_row_is_opened_frame_by_frame(root: Path, tmp_path: Path) -> None:
    good = FrameManifest(frame_paths=(str(root / "0.png"), str(root / "1.png")), fps=2.0)
    emission = emitter(root).emit(user({"type": "input_video", "video_url": good.to_url()}))
    assert FrameManifest.from_url(emission.messages[0]["content"][0]["video_url"]).fps == 2.0
    Image.new("RGB", (32, 24)).save(tmp_path / "outside.png")
    bad = FrameManifest(frame_paths=(str(root / "0.png"), str(tmp_path / "outside.png")))
    with pytest.raises(MediaSourceError):
        emitter(root).emit(user({"type": "input_video", "video_url": bad.to_url()}))


@pytest.mark.parametrize("form", ["manifest", "images"])
@pytest.mark.parametrize(
    "url",
    ["../{name}", "/etc/passwd", "http://example.org/0.png", "file://host/0.png", "missing.png", "a\x00b.png"],
)
def test_what_the_policy_refuses_is_refused_in_every_form(root: Path, form: Any, url: str) -> None:
    url = url.replace("{name}", root.name + "/0.png")
    for part in (still(url), tagged(0, url), {"type": "input_video", "video_url": url}):
        with pytest.raises(MediaSourceError, match="message 0, part 0"):
            emitter(root, tagged_frames=form).emit(user(part))


def test_what_is_no_picture_is_refused(root: Path) -> None:
    with pytest.raises(MediaDecodeError, match="message 0, part 1"):
        emitter(root).emit(user(TEXT, still("not_a_picture.png")))


def test_a_part_without_a_url_is_refused(root: Path) -> None:
    with pytest.raises(RowError, match="message 0, part 0"):
        emitter(root).emit(user({"type": "input_image", "file_id": "abc"}))
