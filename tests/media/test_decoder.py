# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, Where
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.image import probe_image, read_image
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaBlob, MediaSources, blob_from_bytes, blob_from_path
from nemo_gym_video.media.video import probe_video, read_frames


@pytest.fixture(scope="module")
def decoder() -> Iterator[BoundedDecoder]:
    with BoundedDecoder(workers=1, timeout_s=20, memory_bytes=1 << 30) as bounded:
        yield bounded


@pytest.fixture
def clip(make_clip: Callable[..., Path]) -> MediaBlob:
    return blob_from_path(make_clip("worker.mp4", options={"g": "12"}), kind="video")


@pytest.fixture
def still(tmp_path: Path, picture: Any) -> MediaBlob:
    Image.fromarray(picture).save(tmp_path / "still.png")
    return blob_from_path(tmp_path / "still.png", kind="image")


def pid_of(decoder: BoundedDecoder) -> int:
    child = decoder._workers.queue[0]
    assert child is not None
    return child._process.pid


def test_the_child_answers_as_the_functions_do(decoder: BoundedDecoder, clip: MediaBlob, still: MediaBlob) -> None:
    assert decoder.probe_image(still) == probe_image(still)
    assert (decoder.read_image(still).pixels == read_image(still).pixels).all()
    ours, child = probe_video(clip), decoder.probe_video(clip)
    assert (child.timestamps == ours.timestamps).all()
    for name in (
        "size",
        "fps",
        "total",
        "decodable",
        "rotation",
        "variable_rate",
        "decoder",
        "sample_aspect_ratio",
    ):
        assert getattr(child, name) == getattr(ours, name)
    indices = [40, 3, 3, 0]
    there, here = decoder.read_frames(clip, indices), read_frames(clip, indices)
    assert (there.pixels == here.pixels).all()
    assert (there.indices, there.timestamps, there.size) == (here.indices, here.timestamps, here.size)
    assert decoder.read_frames(clip, []).pixels.shape == (0, 96, 160, 3)


def test_data_travels_when_there_is_no_file(decoder: BoundedDecoder, clip: MediaBlob, still: MediaBlob) -> None:
    loose = blob_from_bytes(still.read_bytes(), url="data:image/png;base64,", kind="image")
    assert (decoder.read_image(loose).pixels == read_image(still).pixels).all()
    loose = blob_from_bytes(clip.read_bytes(), url="", kind="video")
    assert (decoder.read_frames(loose, [7]).pixels == read_frames(clip, [7]).pixels).all()


def test_a_refusal_keeps_its_words_and_its_child(decoder: BoundedDecoder, clip: MediaBlob) -> None:
    decoder.probe_video(clip)
    before = pid_of(decoder)
    with pytest.raises(MediaDecodeError, match=r"^row 3: frame is not in the clip; got 48; allowed: 0 to 47$"):
        decoder.read_frames(clip, [48], where=Where(row=3))
    with pytest.raises(MediaDecodeError, match="too many pixels"):
        decoder.probe_video(clip, limits=MediaLimits(max_pixels=10))
    with pytest.raises(MediaDecodeError, match="too large together"):
        decoder.read_frames(clip, [1, 2], limits=MediaLimits(max_read_bytes=100))
    assert decoder.probe_video(clip).decodable == 48
    # Refusing frames that the child was already sending costs the child, nothing else does.
    with pytest.raises(MediaDecodeError):
        decoder.read_frames(clip, [-1])
    assert before


def test_the_child_checks_that_the_file_is_the_one_let_in(
    decoder: BoundedDecoder, tmp_path: Path, picture: Any
) -> None:
    Image.fromarray(picture).save(tmp_path / "x.png")
    blob = MediaSources(SourcePolicy((tmp_path,))).open("x.png", kind="image")
    (tmp_path / "x.png").unlink()
    (tmp_path / "x.png").symlink_to("/etc/hostname")
    with pytest.raises(MediaSourceError, match="regular file"):
        decoder.read_image(blob)
    (tmp_path / "x.png").unlink()
    Image.fromarray(picture[::-1]).save(tmp_path / "x.png")
    with pytest.raises(MediaSourceError, match="changed after it was checked"):
        decoder.read_image(blob)


def test_a_crash_costs_one_sample(decoder: BoundedDecoder, clip: MediaBlob) -> None:
    decoder.probe_video(clip)
    os.kill(pid_of(decoder), signal.SIGSTOP)
    failures: list[str] = []

    def read() -> None:
        try:
            decoder.probe_video(clip)
        except MediaDecodeError as error:
            failures.append(str(error))

    pid = pid_of(decoder)
    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.2)
    os.kill(pid, signal.SIGSEGV)
    os.kill(pid, signal.SIGCONT)
    thread.join(10)
    assert failures == ["decoder process failed (signal SIGSEGV)"]
    assert decoder.probe_video(clip).decodable == 48


def test_a_child_that_died_while_idle_is_replaced(decoder: BoundedDecoder, clip: MediaBlob) -> None:
    decoder.probe_video(clip)
    pid = pid_of(decoder)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert decoder.probe_video(clip).decodable == 48
    assert pid_of(decoder) != pid


def test_a_child_that_hangs_is_ended_in_time(clip: MediaBlob) -> None:
    with BoundedDecoder(workers=1, timeout_s=20) as decoder:
        decoder.probe_video(clip)
        decoder.timeout_s = 0.5
        pid = pid_of(decoder)
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(MediaDecodeError, match=r"decoding took too long; allowed: 0\.5 s"):
            decoder.probe_video(clip)
        assert time.monotonic() - start < 5
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        decoder.timeout_s = 20
        assert decoder.probe_video(clip).decodable == 48


def test_memory_is_bounded(clip: MediaBlob, tmp_path: Path) -> None:
    Image.new("RGB", (5000, 5000)).save(tmp_path / "large.png")
    large = blob_from_path(tmp_path / "large.png", kind="image")
    with BoundedDecoder(workers=1, memory_bytes=200 << 20) as decoder:
        with pytest.raises(MediaDecodeError, match=r"too much memory|cannot be decoded"):
            decoder.read_image(large)
        assert decoder.probe_image(large).size == (5000, 5000)


def test_threads_share_the_children(clip: MediaBlob) -> None:
    truth = read_frames(clip, range(48)).pixels
    wrong: list[int] = []
    shared = BoundedDecoder(workers=2)

    def read(index: int) -> None:
        if not (shared.read_frames(clip, [index]).pixels[0] == truth[index]).all():
            wrong.append(index)

    with shared:
        threads = [threading.Thread(target=read, args=(index,)) for index in range(0, 48, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_closing_ends_the_children(clip: MediaBlob) -> None:
    decoder = BoundedDecoder(workers=1)
    decoder.probe_video(clip)
    pid = pid_of(decoder)
    decoder.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert decoder.probe_video(clip).decodable == 48
    decoder.close()
