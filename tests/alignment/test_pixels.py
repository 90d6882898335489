# SPDX-License-Identifier: Apache-2.0
"""Lazy pixels: once an asset, within a budget, through the policy, from several threads."""

from __future__ import annotations

import base64
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from nemo_gym_video.alignment import MediaRef, index_turns
from nemo_gym_video.alignment import pixels as refs
from nemo_gym_video.alignment.pixels import MediaReader
from nemo_gym_video.errors import MediaDecodeError, MediaSourceError
from nemo_gym_video.media.image import read_image
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.video import read_frames
from nemo_gym_video.messages import FrameManifest

SIZE = (8, 6)
BYTES = SIZE[0] * SIZE[1] * 3


def png(value: int, size: tuple[int, int] = SIZE) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(buffer, format="PNG")
    return buffer.getvalue()


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for value in range(8):
        (tmp_path / f"{value}.png").write_bytes(png(value * 20))
    return tmp_path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was really decoded."""
    names: list[str] = []

    def image(blob: Any, **options: Any) -> Any:
        names.append(blob.digest)
        return read_image(blob, **options)

    def frames(blob: Any, indices: Any, **options: Any) -> Any:
        names.append(f"{blob.digest} {tuple(indices)}")
        return read_frames(blob, indices, **options)

    monkeypatch.setattr(refs, "read_image", image)
    monkeypatch.setattr(refs, "read_frames", frames)
    return names


def reader_of(root: Path, **options: Any) -> MediaReader:
    return MediaReader(MediaSources(SourcePolicy((root,))), **options)


def image_ref(url: str) -> MediaRef:
    return MediaRef("image", (url,))


def test_one_picture_by_path_uri_and_data_url_is_decoded_once(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root)
    forms = ["3.png", str(root / "3.png"), (root / "3.png").as_uri(), data_url(png(60))]
    images = [reader.handle(image_ref(form)).image() for form in forms]
    assert len(decoded) == 1
    assert all(image is images[0] for image in images)
    assert images[0].pixels[0, 0].tolist() == [60, 60, 60]
    reader.handle(image_ref("4.png")).image()
    assert len(decoded) == 2


def test_pixels_cannot_be_changed_by_one_of_many_users(root: Path) -> None:
    image = reader_of(root).handle(image_ref("1.png")).image()
    with pytest.raises(ValueError):
        image.pixels[0, 0, 0] = 1


def test_making_a_handle_opens_nothing(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root)
    reader.handle(image_ref("no such file"))
    reader.handle(image_ref("https://example.com/a.png"))
    assert decoded == []


@pytest.mark.parametrize("url", ["../1.png", "https://example.com/a.png", "/etc/hostname", "missing.png"])
def test_the_policy_decides(root: Path, url: str) -> None:
    (root / "in").mkdir()
    with pytest.raises(MediaSourceError):
        reader_of(root / "in").handle(image_ref(url)).image()


def test_least_recently_used_goes_first(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root, max_bytes=2 * BYTES)
    for name in ("0.png", "1.png", "0.png", "2.png", "0.png"):  # 1 is dropped when 2 comes
        reader.handle(image_ref(name)).image()
        assert reader.kept_bytes <= 2 * BYTES
    assert len(decoded) == 3
    reader.handle(image_ref("1.png")).image()
    assert len(decoded) == 4


def test_nothing_is_kept_without_a_budget(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root, max_bytes=BYTES - 1)
    for _ in range(3):
        reader.handle(image_ref("0.png")).image()
    assert reader.kept_bytes == 0
    assert len(decoded) == 3


def test_a_replaced_file_is_decoded_again(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root)
    assert reader.handle(image_ref("0.png")).image().pixels[0, 0, 0] == 0
    (root / "0.png").unlink()
    (root / "0.png").write_bytes(png(99, (16, 16)))
    assert reader.handle(image_ref("0.png")).image().pixels[0, 0, 0] == 99


def test_a_failure_is_not_kept(root: Path) -> None:
    reader = reader_of(root)
    (root / "bad.png").write_bytes(png(1)[:50])
    with pytest.raises(MediaDecodeError):
        reader.handle(image_ref("bad.png")).image()
    (root / "bad.png").write_bytes(png(7))
    assert reader.handle(image_ref("bad.png")).image().pixels[0, 0, 0] == 7


def test_threads_that_ask_at_once_share_one_decode(root: Path) -> None:
    reader = reader_of(root)
    gate, calls = threading.Barrier(8), []
    slow = threading.Event()

    def decode() -> Any:
        calls.append(1)
        slow.wait(0.2)
        return reader.handle(image_ref("5.png")).image()

    def ask() -> Any:
        gate.wait()
        return reader.once("key", decode)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(), range(8)))
    assert len(calls) == 1
    assert all(one is found[0] for one in found)


def test_threads_that_wait_get_the_failure(root: Path) -> None:
    reader = reader_of(root)
    gate = threading.Barrier(4)

    def fail() -> Any:
        threading.Event().wait(0.1)
        raise MediaDecodeError("broken")

    def ask() -> str:
        gate.wait()
        try:
            reader.once("key", fail)
        except MediaDecodeError as error:
            return str(error)
        return "no error"

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: ask(), range(4))) == {"broken"}


def test_many_threads_on_many_images_stay_in_the_budget(root: Path) -> None:
    reader = reader_of(root, max_bytes=3 * BYTES)

    def look(number: int) -> bool:
        value = number * 7 % 8
        image = reader.handle(image_ref(f"{value}.png")).image()
        return bool((image.pixels == value * 20).all()) and reader.kept_bytes <= 3 * BYTES

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, range(400)))


def tagged(*names: str) -> MediaRef:
    return MediaRef("video", names, source="clip.mp4", tagged=True)


def test_tagged_frames_and_a_manifest_of_them_are_one_video(root: Path, decoded: list[str]) -> None:
    reader = reader_of(root)
    manifest = FrameManifest(frame_paths=tuple(str(root / f"{value}.png") for value in (2, 1, 2))).to_url()
    frames = reader.handle(tagged("2.png", "1.png", "2.png")).frames()
    assert frames.pixels.shape == (3, SIZE[1], SIZE[0], 3)
    assert frames.pixels[:, 0, 0, 0].tolist() == [40, 20, 40]
    assert frames.timestamps is None
    count = len(decoded)
    assert reader.handle(MediaRef("video", (manifest,))).frames() is frames
    assert len(decoded) == count
    chosen = reader.handle(MediaRef("video", (manifest,))).frames([1, 0])
    assert chosen.pixels[:, 0, 0, 0].tolist() == [20, 40]
    with pytest.raises(MediaDecodeError):
        reader.handle(tagged("2.png", "1.png")).frames([2])
    with pytest.raises(MediaDecodeError):
        reader.handle(tagged("2.png", "1.png")).frames([-1])


def test_frames_of_two_sizes_are_no_video(root: Path) -> None:
    (root / "big.png").write_bytes(png(0, (9, 6)))
    with pytest.raises(MediaDecodeError):
        reader_of(root).handle(tagged("0.png", "big.png")).frames()


def test_a_manifest_cannot_leave_the_roots(root: Path) -> None:
    (root / "in").mkdir()
    manifest = FrameManifest(frame_paths=(str(root / "0.png"),)).to_url()
    with pytest.raises(MediaSourceError):
        reader_of(root / "in").handle(MediaRef("video", (manifest,))).frames()


def test_frames_together_are_bounded(root: Path) -> None:
    reader = MediaReader(MediaSources(SourcePolicy((root,), MediaLimits(max_read_bytes=2 * BYTES))))
    reader.handle(tagged("0.png", "1.png")).frames()
    with pytest.raises(MediaDecodeError):
        reader.handle(tagged("0.png", "1.png", "2.png")).frames()


def write_clip(path: Path, count: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 64, 48, "yuv420p", 4_000_000
        for value in range(count):
            pixels = np.full((48, 64, 3), value * 20, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def test_a_native_video_gives_the_frames_that_the_contract_recorded(root: Path, decoded: list[str]) -> None:
    write_clip(root / "clip.mp4", 10)
    rollout = {
        "media_contract": {"version": 1, "mode": "native_video", "items": [
            {"kind": "video", "source": "clip.mp4", "frames": 3, "frame_indices": [0, 4, 9], "fps": 10.0}]},
        "responses_create_params": {"input": [{"role": "user", "content": [
            {"type": "input_video", "video_url": "clip.mp4"}]}]},
        "response": {"output": [
            {"type": "message", "role": "assistant", "prompt_token_ids": [1], "generation_token_ids": [2]}]},
    }  # fmt: skip
    reader = reader_of(root)
    for _ in range(3):  # as many repeats of one rollout
        (occurrence,) = index_turns(rollout).turns[0].media
        frames = reader.handle(occurrence).frames()
    assert len(decoded) == 1
    assert frames.indices == (0, 4, 9)
    assert frames.timestamps == pytest.approx((0.0, 0.4, 0.9))
    assert np.abs(frames.pixels[:, 24, 32, 0].astype(int) - [0, 80, 180]).max() <= 6
    other = reader.handle(occurrence).frames([4])
    assert other.indices == (4,)
    with pytest.raises(MediaDecodeError, match="no frame indices"):
        reader.handle(MediaRef("video", ("clip.mp4",))).frames()
    with pytest.raises(MediaDecodeError):
        reader.handle(occurrence).frames([10])


def test_image_and_frames_are_not_mixed_up(root: Path) -> None:
    reader = reader_of(root)
    with pytest.raises(MediaDecodeError):
        reader.handle(image_ref("0.png")).frames()
    with pytest.raises(MediaDecodeError):
        reader.handle(tagged("0.png")).image()
