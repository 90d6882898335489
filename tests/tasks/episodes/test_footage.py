# SPDX-License-Identifier: Apache-2.0
"""A clip shown for [s, e] holds exactly the source frames presented in it, whatever the source is like."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError
from nemo_gym_video.media import video
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import FrameManifest
from nemo_gym_video.tasks.clip_explorer.explorer import ExplorerEpisode, ExplorerLimits
from nemo_gym_video.tasks.episode_media import ClipFootage, StoreWriter, encode_clip
from nemo_gym_video.tasks.task import Answer

Pixels = NDArray[np.uint8]
Read = Callable[[Pixels], int]

VARIABLE = [0, 40, 90, 200, 240, 500, 540, 900, 1000, 1010, 1500, 1600, 2000, 2300, 2310, 2400]
SOURCES: dict[str, dict[str, Any]] = {
    "constant.mp4": {"frames": 48},
    "b_frames.mp4": {"frames": 48, "b_frames": 3, "gop": 12},
    "variable.mp4": {"times_ms": VARIABLE},
    "late_start.mkv": {"times_ms": [1500 + 40 * index for index in range(48)]},
    "variable_b_frames.mkv": {"times_ms": VARIABLE, "b_frames": 2},
}


def truth(path: Path) -> list[float]:
    """Presentation times by a full sequential decode."""
    with av.open(str(path)) as container:
        return [float(frame.pts * frame.time_base) for frame in container.decode(video=0)]


def start(path: Path, store: Path, **limits: Any) -> ExplorerEpisode:
    sources = MediaSources(SourcePolicy(roots=(path.parent,)))
    footage = ClipFootage.open(sources, path.name, limits=MediaLimits(), decoder=video)
    return ExplorerEpisode(footage, StoreWriter(ContentStore(store)), ExplorerLimits(max_frames=200, **limits))


def ask(episode: ExplorerEpisode, begin: float, end: float) -> str:
    text = f"<request>{json.dumps({'clip': {'start': begin, 'end': end}})}</request>"
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
    (part,) = [part for part in episode.step(Answer(output)).parts if part["type"] == "input_video"]
    return str(part["video_url"])


def manifest_frames(url: str) -> list[Pixels]:
    return [np.asarray(Image.open(path)) for path in FrameManifest.from_url(url).frame_paths]


def clip_frames(url: str) -> list[Pixels]:
    with av.open(url.removeprefix("file://")) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("transport", ["manifest", "clip"])
def test_exactly_the_frames_presented_between_the_ends(
    name: str, transport: str, make_clip: Callable[..., Path], read_number: Read, tmp_path: Path
) -> None:
    path = make_clip(name, **SOURCES[name])
    times = truth(path)
    episode = start(path, tmp_path, transport=transport)
    read = manifest_frames if transport == "manifest" else clip_frames
    span = times[-1] - times[0]
    # Ends on a frame, between frames, and at the very end.
    for begin, end in [
        (times[3], times[7]),
        (times[0], times[1]),
        (times[0] + 0.31 * span, times[0] + 0.62 * span),
        (times[5] + 1e-3, times[9] - 1e-3),
        (times[-2], times[-1] + 5),
    ]:
        wanted = [number for number, time in enumerate(times) if begin - 1e-6 <= time <= end + 1e-6]
        assert [read_number(frame) for frame in read(ask(episode, begin, end))] == wanted


@pytest.mark.parametrize(("rotate", "back"), [(0, 0), (90, 3), (180, 2), (270, 1)])
def test_rotation_metadata_is_applied(
    rotate: int, back: int, make_clip: Callable[..., Path], read_number: Read, tmp_path: Path
) -> None:
    path = make_clip(f"rotated_{rotate}.mp4", frames=48, rotate=rotate)
    frames = manifest_frames(ask(start(path, tmp_path), 0.5, 1.0))
    assert frames[0].shape[:2] == ((160, 96) if rotate in (90, 270) else (96, 160))
    # The metadata turns counter-clockwise, as numpy does: the rest of a full turn undoes it.
    assert [read_number(np.rot90(frame, back)) for frame in frames] == list(range(12, 25))


def test_cached_frames_are_the_source_pixels_bit_for_bit(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    path = make_clip("b_frames.mp4", **SOURCES["b_frames.mp4"])
    with av.open(str(path)) as container:
        source = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    shown = manifest_frames(ask(start(path, tmp_path), 0.0, 0.5))
    assert all(np.array_equal(one, other) for one, other in zip(shown, source, strict=False))
    assert len(shown) == 13


def test_a_cut_clip_keeps_the_distances_in_time(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    path = make_clip("variable.mp4", times_ms=VARIABLE)
    times = truth(path)
    url = ask(start(path, tmp_path, transport="clip"), times[4], times[11])
    cut = truth(Path(url.removeprefix("file://")))
    assert cut == pytest.approx([time - times[4] for time in times[4:12]], abs=2e-3)


def test_asking_twice_writes_nothing_new(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    path = make_clip("constant.mp4", frames=48)
    episode = start(path, tmp_path, max_turns=20)
    first = ask(episode, 0.2, 0.4)
    before = sorted(tmp_path.rglob("*"))
    assert ask(episode, 0.2, 0.4) == first
    assert sorted(tmp_path.rglob("*")) == before


def test_odd_sides_are_kept() -> None:
    frames = np.zeros((3, 33, 47, 3), np.uint8)
    data = encode_clip(frames, [0.0, 0.1, 0.3])
    import io

    with av.open(io.BytesIO(data)) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert [frame.shape for frame in decoded] == [(33, 47, 3)] * 3


def test_a_single_frame_is_a_clip() -> None:
    assert encode_clip(np.zeros((1, 32, 32, 3), np.uint8), [4.0])


def test_a_clip_outside_the_roots_is_refused(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    path = make_clip("constant.mp4", frames=48)
    sources = MediaSources(SourcePolicy(roots=(tmp_path,)))
    with pytest.raises(MediaSourceError):
        ClipFootage.open(sources, str(path), limits=MediaLimits(), decoder=video)


def test_a_clip_is_read_the_same_in_a_child_process(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    path = make_clip("constant.mp4", frames=48)
    sources = MediaSources(SourcePolicy(roots=(path.parent,)))
    with BoundedDecoder(workers=1) as child:
        bounded = ClipFootage.open(sources, path.name, limits=MediaLimits(), decoder=child)
        here = ClipFootage.open(sources, path.name, limits=MediaLimits(), decoder=video)
        assert bounded.times == here.times
        assert np.array_equal(bounded.read([3, 40, 3]), here.read([3, 40, 3]))


def test_a_file_that_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").write_bytes(b"")
    sources = MediaSources(SourcePolicy(roots=(tmp_path,)))
    with pytest.raises((MediaDecodeError, MediaSourceError)):
        ClipFootage.open(sources, "empty.mp4", limits=MediaLimits(), decoder=video)


def test_ticks_are_fine_enough_for_ntsc() -> None:
    times = [float(Fraction(1001 * index, 30000)) for index in range(30)]
    data = encode_clip(np.zeros((30, 32, 32, 3), np.uint8), times)
    import io

    with av.open(io.BytesIO(data)) as container:
        read = [float(frame.pts * frame.time_base) for frame in container.decode(video=0)]
    assert read == pytest.approx(times, abs=1e-4)
