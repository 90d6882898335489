# SPDX-License-Identifier: Apache-2.0
"""Any generated clip, any choice of frames: bit for bit what a full sequential decode gives."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nemo_gym_video.media.sources import blob_from_path
from nemo_gym_video.media.video import frames_between, open_clip

Pixels = npt.NDArray[np.uint8]

_SPEC = importlib.util.spec_from_file_location("media_conftest", Path(__file__).with_name("conftest.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_HELPERS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_HELPERS)
write_clip: Callable[..., Path] = _HELPERS.write_clip
frame_number: Callable[[Pixels], int] = _HELPERS.frame_number


@st.composite
def x264_clips(draw: st.DrawFn) -> dict[str, Any]:
    params = {
        "keyint": draw(st.integers(1, 40)),
        "bframes": draw(st.integers(0, 6)),
        "ref": draw(st.integers(1, 6)),
        "b-pyramid": draw(st.sampled_from(["none", "strict", "normal"])),
        "b-adapt": draw(st.integers(0, 2)),
        "open-gop": draw(st.integers(0, 1)),
        "weightp": draw(st.integers(0, 2)),
        "slices": draw(st.integers(1, 3)),
        "threads": 1,
    }
    if draw(st.integers(0, 4)) == 0:
        params |= {"intra-refresh": 1, "open-gop": 0, "bframes": 0}
    options = {"preset": "veryfast", "x264-params": ":".join(f"{key}={value}" for key, value in params.items())}
    return {"name": "clip." + draw(st.sampled_from(["mp4", "mkv", "ts", "mov"])), "options": options}


def other_clips() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.builds(
            lambda suffix, b, gop: {"name": "clip." + suffix, "codec": "mpeg4", "b_frames": b, "gop": gop,
                                    "options": {"b": "2M"}},
            st.sampled_from(["mp4", "avi", "mkv"]), st.integers(0, 3), st.integers(1, 30),
        ),
        st.builds(
            lambda suffix, b, gop: {"name": "clip." + suffix, "codec": "mpeg2video", "b_frames": b, "gop": gop,
                                    "options": {"b": "4M"}},
            st.sampled_from(["ts", "mpg"]), st.integers(0, 3), st.integers(2, 20),
        ),
        st.builds(
            lambda codec, gop: {"name": "clip.webm", "codec": codec, "gop": gop,
                                "options": {"deadline": "realtime", "cpu-used": "8", "b": "300k"}},
            st.sampled_from(["libvpx", "libvpx-vp9"]), st.integers(1, 40),
        ),
    )  # fmt: skip


@st.composite
def clips(draw: st.DrawFn) -> dict[str, Any]:
    how: dict[str, Any] = draw(st.one_of(x264_clips(), x264_clips(), other_clips()))
    count = draw(st.integers(1, 60))
    if how["name"].endswith((".mp4", ".mkv", ".webm")) and draw(st.booleans()):
        gaps = draw(st.lists(st.integers(1, 400), min_size=count, max_size=count))
        how["times_ms"] = np.cumsum(gaps).tolist()
    else:
        how["frames"] = count
    how["choice"] = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=12))
    return how


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clips())
def test_chosen_frames_are_those_of_a_sequential_decode(how: dict[str, Any]) -> None:
    how = dict(how)
    choice, name = how.pop("choice"), how.pop("name")
    with tempfile.TemporaryDirectory() as folder:
        path = write_clip(Path(folder) / name, **how)
        with av.open(str(path)) as container:
            frames = list(container.decode(video=0))
            truth = [frame.to_ndarray(format="rgb24", interpolation="BICUBIC") for frame in frames]
            times = [float(frame.pts * frame.time_base) for frame in frames]
        with open_clip(blob_from_path(path, kind="video")) as clip:
            assert clip.info.decodable == clip.info.total == len(truth)
            assert clip.info.timestamps.tolist() == times
            # Twice from one open clip: what was read before leaves nothing behind.
            for indices in (choice, choice[::-1]):
                got = clip.read(indices)
                assert got.timestamps == tuple(times[index] for index in indices)
                for index, pixels in zip(indices, got.pixels, strict=True):
                    assert (pixels == truth[index]).all()
            first, last = min(choice), max(choice)
            assert frames_between(clip.info, times[first], times[last]) == range(first, last + 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1023))
def test_the_truth_can_be_read_back(number: int) -> None:
    assert frame_number(_HELPERS.numbered_frame(number)) == number
