# SPDX-License-Identifier: Apache-2.0
"""Counts are checked against recorded outputs of the real processor, not against the package's own counters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nemo_gym_video.baseline.chat import ChatMedia
from nemo_gym_video.baseline.processor import MediaProcessor
from nemo_gym_video.baseline.seen import SeenMedia
from nemo_gym_video.baseline.tokenizer import IMAGE, IMG_END, IMG_START, decode
from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, RowError, Where
from nemo_gym_video.media import image as images
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.prepare.synthetic.encode import write_clip

Make = Callable[..., MediaProcessor]


def runs(token_ids: list[int]) -> list[int]:
    return [len(list(group)) for token, group in groupby(token_ids) if token == IMAGE]


def image(path: Path | str) -> ChatMedia:
    return ChatMedia("image", str(path), Where(message=0, part=0))


def video(url: Path | str) -> ChatMedia:
    return ChatMedia("video", str(url), Where(message=0, part=0))


def manifest(paths: list[Path], fps: float = 1.0) -> ChatMedia:
    return video(FrameManifest(frame_paths=tuple(str(path) for path in paths), fps=fps).to_url())


@pytest.fixture
def clip(tmp_path: Path, textured: Callable[..., Any]) -> Path:
    path = tmp_path / "clip.mp4"
    write_clip(path, iter([textured(0, (640, 360))] * 40), fps=24)
    return path


@pytest.mark.parametrize(
    ("size", "tokens"), [((64, 32), 276), ((640, 360), 286), ((1920, 1080), 2040), ((512, 512), 256)]
)
def test_an_image_is_one_wrapped_run(
    make_processor: Make, write_image: Callable[..., Path], size: tuple[int, int], tokens: int
) -> None:
    processor = make_processor()
    media = processor.open_all([image(write_image("a.png", size))])
    assert media[0].size == size
    assert processor.expand(media) == [[IMG_START, *[IMAGE] * tokens, IMG_END]]


def test_images_of_a_request_share_one_budget_unless_told_otherwise(
    make_processor: Make, write_image: Callable[..., Path]
) -> None:
    items = [image(write_image("a.png", (1920, 1080)))] * 3
    joint, alone = make_processor(max_model_len=4096), make_processor(max_model_len=4096, joint_budget=False)
    assert [runs(ids) for ids in joint.expand(joint.open_all(items))] == [[1323]] * 3
    assert [runs(ids) for ids in alone.expand(alone.open_all(items))] == [[2040]] * 3


def test_a_manifest_is_one_video(make_processor: Make, write_image: Callable[..., Path]) -> None:
    processor = make_processor()
    frames = [write_image(f"{number}.png", (640, 360), seed=number) for number in range(7)]
    (seen,) = processor.open_all([manifest(frames)])
    assert (seen.kind, len(seen.frames), seen.size) == ("video", 7, (640, 360))
    (ids,) = processor.expand([seen])
    assert runs(ids) == [252] * 4
    text = decode(ids).splitlines()
    assert text[0] == "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 1.00 seconds: "
    assert text[-1] == "Frame 7 sampled at 6.00 seconds: "


def test_the_square_mode_gives_the_other_count(make_processor: Make, omni: Any) -> None:
    frame = np.zeros((9, 16, 3), np.uint8)
    seen = SeenMedia(
        kind="video",
        frames=(frame,) * 64,
        size=(1920, 1080),
        indices=tuple(range(64)),
        timestamps=tuple(float(second) for second in range(64)),
    )
    counts = {}
    for keep in (True, False):
        (ids,) = make_processor(settings=omni(video_maintain_aspect_ratio=keep)).expand([seen])
        counts[keep] = sum(runs(ids))
    assert counts == {True: 8064, False: 8192}


def test_a_native_video_is_sampled_by_the_convention(make_processor: Make, clip: Path) -> None:
    seen = {
        name: make_processor(num_frames=8, sampling=name).open_all([video(clip)])[0]
        for name in ("vllm", "nemo_rl")
    }
    assert seen["vllm"].indices == (0, 5, 11, 16, 22, 27, 33, 39)
    assert seen["nemo_rl"].indices == (0, 6, 11, 17, 22, 28, 33, 39)
    assert seen["vllm"].timestamps[1] == pytest.approx(5 / 24, abs=1e-3)
    processor = make_processor(num_frames=8)
    (ids,) = processor.expand(processor.open_all([video(clip)]))
    assert runs(ids) == [252] * 4
    assert decode(ids).startswith("Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.25 seconds: ")


def test_policies_get_smaller_pixels_but_counts_the_full_size(
    make_processor: Make, write_image: Callable[..., Path]
) -> None:
    (seen,) = make_processor().open_all([image(write_image("a.png", (1920, 1080)))])
    assert seen.frames[0].shape == (432, 768, 3)
    assert seen.size == (1920, 1080)


def test_equal_content_is_decoded_once(
    make_processor: Make, write_image: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    read = images.read_image

    def counting(*args: Any, **options: Any) -> Any:
        decoded.append(1)
        return read(*args, **options)

    monkeypatch.setattr("nemo_gym_video.baseline.processor.read_image", counting)
    first, copy, other = write_image("a.png"), write_image("b.png"), write_image("c.png", seed=1)
    processor = make_processor()
    for _ in range(4):
        processor.open_all([image(first), image(copy), image(copy.as_uri()), image(other)])
    assert len(decoded) == 2


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("/etc/passwd", MediaSourceError),
        ("http://example.org/a.png", MediaSourceError),
        ("missing.png", MediaSourceError),
        ("data:image/png;base64,AAAA", MediaDecodeError),
    ],
)
def test_what_the_policy_refuses_is_not_opened(make_processor: Make, url: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="message 0, part 0"):
        make_processor().open_all([image(url)])


def test_manifests_are_held_to_the_same_policy(make_processor: Make, write_image: Callable[..., Path]) -> None:
    processor = make_processor()
    with pytest.raises(MediaSourceError):
        processor.open_all([manifest([Path("/etc/passwd")])])
    with pytest.raises(MediaDecodeError, match="differ in size"):
        processor.open_all([manifest([write_image("a.png", (64, 48)), write_image("b.png", (48, 64))])])
    with pytest.raises(RowError, match="unreadable"):
        processor.open_all([video("data:video/x-nemo-rl-cached-frames;base64,####")])
