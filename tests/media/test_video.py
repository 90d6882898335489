# SPDX-License-Identifier: Apache-2.0
"""Frames are exact: told by the number each carries, and bit for bit those of a full sequential decode."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError
from nemo_gym_video.media import video_decode, video_reader
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.media.video import frames_between, open_clip, probe_video, read_frames

Pixels = npt.NDArray[np.uint8]
MakeClip = Callable[..., Path]
ReadNumber = Callable[[Pixels], int]

X264 = {"preset": "veryfast", "tune": "fastdecode"}


def sequential(path: Path) -> list[tuple[float, Pixels]]:
    """Every frame of a full sequential decode: (seconds, RGB)."""
    with av.open(str(path)) as container:
        return [
            (float(frame.pts * frame.time_base), frame.to_ndarray(format="rgb24", interpolation="BICUBIC"))
            for frame in container.decode(video=0)
        ]


CLIPS: dict[str, dict[str, Any]] = {
    "h264-b.mp4": {"options": {"bf": "3", "g": "12"}},
    "h264-pyramid.mkv": {"options": {"x264-params": "bframes=5:b-pyramid=normal:keyint=20:ref=4"}},
    "h264-open-gop.mp4": {"options": {"x264-params": "open-gop=1:keyint=12:bframes=3"}},
    "h264-intra-refresh.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=12:bframes=0"}},
    "h264-one-gop.mp4": {"options": {"x264-params": "keyint=infinite"}},
    "h264-all-key.mov": {"options": {"g": "1"}},
    "h264.ts": {"options": {"g": "12", "bf": "2"}},
    "h264.flv": {"options": {"g": "12"}},
    "h264-sound.mp4": {"options": {"g": "12"}, "audio": True},
    "h264-sound.mkv": {"options": {"g": "12"}, "audio": True},
    "fragmented.mp4": {"gop": 12, "container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "faststart.mp4": {"gop": 12, "container_options": {"movflags": "faststart"}},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=none:keyint=12"}},
    "hevc-closed.mkv": {"codec": "libx265", "options": {"x265-params": "log-level=none:keyint=12:open-gop=0"}},
    "av1.mp4": {"codec": "libsvtav1", "options": {"preset": "12", "svtav1-params": "keyint=12"}},
    "av1.webm": {"codec": "libsvtav1", "options": {"preset": "12"}},
    "vp8-altref.webm": {
        "codec": "libvpx",
        "options": {"auto-alt-ref": "1", "lag-in-frames": "12", "arnr-maxframes": "5", "deadline": "good",
                    "cpu-used": "4", "b": "200k", "g": "24"},
        "frames": 90,
    },
    "vp9-altref.webm": {
        "codec": "libvpx-vp9",
        "options": {"auto-alt-ref": "1", "lag-in-frames": "12", "deadline": "good", "cpu-used": "5", "b": "200k"},
        "frames": 60,
    },
    "vp9.mp4": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8", "g": "12"}},
    "mpeg4-b.avi": {"codec": "mpeg4", "b_frames": 2, "options": {"b": "2M"}},
    "mpeg4.avi": {"codec": "mpeg4", "b_frames": 0, "options": {"b": "2M"}},
    "mpeg4-odd-size.mp4": {"codec": "mpeg4", "size": (161, 97), "options": {"b": "2M"}},
    "mpeg2.ts": {"codec": "mpeg2video", "b_frames": 2, "gop": 12, "options": {"b": "4M"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "b_frames": 2, "gop": 12, "format": "vob", "options": {"b": "4M"}},
    "mjpeg.avi": {"codec": "mjpeg", "pix_fmt": "yuvj420p", "options": {"q:v": "3"}},
    "ffv1.mkv": {"codec": "ffv1", "pix_fmt": "bgr0"},
    "h264-444.mkv": {"pix_fmt": "yuv444p"},
    "h264-10bit.mkv": {"pix_fmt": "yuv420p10le", "options": {"g": "12"}},
    "vfr.mp4": {"times_ms": [0, 40, 80, 300, 340, 1000, 1040, 1041, 1500, 1501, 3000, 3033, 3066, 3100, 3300],
                "options": {"g": "5", "bf": "2"}},
    "vfr.webm": {"times_ms": [0, 40, 80, 300, 340, 1000, 1040, 1041, 1500, 1501], "codec": "libvpx-vp9",
                 "options": {"deadline": "realtime", "cpu-used": "8", "g": "4"}},
    "late.mp4": {"times_ms": [1500 + 40 * n for n in range(30)], "options": {"g": "8"}},
    "late.mkv": {"times_ms": [90_000 + 40 * n for n in range(30)], "options": {"g": "8"}},
    "one-frame.mp4": {"frames": 1},
    "two-frames.webm": {"frames": 2, "codec": "libvpx-vp9"},
    "grey.gif": {"codec": "gif", "pix_fmt": "gray", "fps": 25, "frames": 20},
}  # fmt: skip


@pytest.mark.parametrize("name", CLIPS)
def test_frames_equal_a_sequential_decode(make_clip: MakeClip, read_number: ReadNumber, name: str) -> None:
    path = make_clip(name, **CLIPS[name])
    truth = sequential(path)
    info = probe_video(path)
    count = len(CLIPS[name].get("times_ms", ())) or CLIPS[name].get("frames", 48)
    assert info.total == info.decodable == len(truth) == count
    assert info.timestamps.tolist() == [seconds for seconds, _ in truth]
    choices = [[0], [count - 1], [count // 2], list(range(count)), list(range(0, count, 7)), [0, count - 1],
               list(range(1, count, 13))]  # fmt: skip
    for indices in choices:
        if not indices:
            continue
        got = read_frames(path, indices)
        assert got.indices == tuple(indices)
        assert got.timestamps == tuple(truth[index][0] for index in indices)
        assert got.decodable == count
        for index, pixels in zip(indices, got.pixels, strict=True):
            assert (pixels == truth[index][1]).all(), index
            assert read_number(pixels) == index


@pytest.mark.parametrize("name", ["h264-b.mp4", "h264-open-gop.mp4", "h264.ts", "hevc.mp4", "vp9.mp4",
                                  "mpeg4-b.avi", "vp8-altref.webm", "h264-one-gop.mp4",
                                  "mpeg2.mpg", "late.mkv"])  # fmt: skip
@pytest.mark.parametrize("held", [0, 1 << 30])
def test_threads_change_nothing(
    make_clip: MakeClip, read_number: ReadNumber, monkeypatch: pytest.MonkeyPatch, name: str, held: int
) -> None:
    """Stretches in parallel (much may be held) and one frame ahead (nothing may): what short clips do not need."""
    monkeypatch.setattr(video_decode, "_SMALL_WORK", 0)
    monkeypatch.setattr(video_decode, "_HELD_BYTES", held)
    path = make_clip(name, **CLIPS[name])
    truth = sequential(path)
    for indices in (range(len(truth)), range(0, len(truth), 5), [len(truth) - 1, 0]):
        got = read_frames(path, list(indices))
        assert all((pixels == truth[index][1]).all() for index, pixels in zip(indices, got.pixels, strict=True))
    with open_clip(path) as clip:
        first = next(clip.iter_frames(range(len(truth))))
        assert read_number(first.pixels) == 0


@pytest.mark.parametrize("seed", range(4))
def test_threads_find_damage_too(
    make_clip: MakeClip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(video_decode, "_SMALL_WORK", 0)
    path = damaged(make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"]), tmp_path / "damaged.mp4", seed=seed, hits=2)
    truth = dict(enumerate_sequential(path))
    for indices in ([11, 23, 35, 47], list(range(0, 48, 6))):
        try:
            got = read_frames(path, indices)
        except MediaDecodeError:
            continue
        assert all((pixels == truth[index]).all() for index, pixels in zip(indices, got.pixels, strict=True))


@pytest.mark.parametrize("name", ["h264-b.mp4", "h264-pyramid.mkv", "vp9.mp4", "mpeg4-b.avi", "mpeg4-odd-size.mp4",
                                  "hevc.mp4", "grey.gif", "h264-444.mkv", "mjpeg.avi", "ffv1.mkv"])  # fmt: skip
def test_pixels_and_rate_are_those_of_opencv(make_clip: MakeClip, name: str) -> None:
    path = make_clip(name, **CLIPS[name])
    capture = cv2.VideoCapture(str(path))
    info = probe_video(path)
    assert info.fps == pytest.approx(capture.get(cv2.CAP_PROP_FPS))
    for frame in read_frames(path, range(info.decodable)).pixels:
        found, expected = capture.read()
        assert found
        assert (frame == expected[..., ::-1]).all()
    assert not capture.read()[0]


def test_any_order_and_repeats_are_kept(make_clip: MakeClip, read_number: ReadNumber) -> None:
    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    got = read_frames(path, [40, 3, 3, 0, 40])
    assert got.indices == (40, 3, 3, 0, 40)
    assert [read_number(pixels) for pixels in got.pixels] == [40, 3, 3, 0, 40]
    assert read_frames(path, []).pixels.shape == (0, 96, 160, 3)


@pytest.mark.parametrize("index", [-1, 48, 10**12])
def test_a_frame_that_is_not_there_is_refused(make_clip: MakeClip, index: int) -> None:
    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    with pytest.raises(MediaDecodeError, match=r"frame is not in the clip; got .*; allowed: 0 to 47"):
        read_frames(path, [0, index])


@pytest.mark.parametrize("degrees", [90, 180, -90])
def test_rotation_is_applied(make_clip: MakeClip, degrees: int) -> None:
    path = make_clip(f"turn{degrees}.mp4", frames=3, rotate=degrees, options={"crf": "5"})
    upright = read_frames(make_clip("turn0.mp4", frames=3, options={"crf": "5"}), [1])
    turned = read_frames(path, [1])
    # PyAV's argument is counterclockwise; the record is clockwise, as OpenCV's and a phone's tag are.
    capture = cv2.VideoCapture(str(path))
    info = probe_video(path)
    assert info.rotation == capture.get(cv2.CAP_PROP_ORIENTATION_META) == -degrees % 360
    assert turned.size == info.size == ((160, 96) if degrees == 180 else (96, 160))
    assert (turned.pixels[0] == np.rot90(upright.pixels[0], degrees // 90)).all()
    capture.read()
    assert (turned.pixels[0] == capture.read()[1][..., ::-1]).all()


def set_matrix(path: Path, matrix: Sequence[int]) -> Path:
    """A copy of an MP4 with the track header's display matrix a b c d replaced (16.16 fixed point)."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = (value << 16 for value in matrix)
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    copy = path.with_name(f"matrix{'_'.join(map(str, matrix))}.mp4")
    copy.write_bytes(data)
    return copy


@pytest.mark.parametrize(
    ("matrix", "turn", "mirrored", "move"),
    [
        ((1, 0, 0, 1), 0, False, lambda p: p),
        ((0, 1, -1, 0), 90, False, lambda p: np.rot90(p, -1)),
        ((-1, 0, 0, -1), 180, False, lambda p: np.rot90(p, 2)),
        ((0, -1, 1, 0), 270, False, lambda p: np.rot90(p, 1)),
        ((-1, 0, 0, 1), 0, True, lambda p: p[:, ::-1]),
        ((1, 0, 0, -1), 180, True, lambda p: p[::-1]),
        ((0, 1, 1, 0), 270, True, lambda p: p.transpose(1, 0, 2)),
        ((0, -1, -1, 0), 90, True, lambda p: np.rot90(p, 2).transpose(1, 0, 2)),
    ],
)
def test_every_display_matrix_of_quarter_turns_and_mirrors(
    make_clip: MakeClip, matrix: tuple[int, ...], turn: int, mirrored: bool, move: Callable[[Pixels], Pixels]
) -> None:
    plain = make_clip("turn0.mp4", frames=3, options={"crf": "5"})
    path = set_matrix(plain, matrix)
    info = probe_video(path)
    assert (info.rotation, info.mirrored) == (turn, mirrored)
    stored = read_frames(plain, [2]).pixels[0]
    shown = read_frames(path, [2])
    assert (shown.pixels[0] == move(stored)).all()
    assert shown.size == (shown.pixels.shape[2], shown.pixels.shape[1])
    # The record says the same: mirror first, then turn clockwise.
    again = stored[:, ::-1] if info.mirrored else stored
    assert (shown.pixels[0] == np.rot90(again, -info.rotation // 90)).all()


def test_a_clip_turned_by_another_angle_is_refused(make_clip: MakeClip) -> None:
    path = set_matrix(make_clip("turn0.mp4", frames=3, options={"crf": "5"}), (1, 1, -1, 1))
    with pytest.raises(MediaDecodeError, match="no multiple of 90 degrees"):
        probe_video(path)


def test_times_come_from_the_stream(make_clip: MakeClip) -> None:
    times = CLIPS["vfr.mp4"]["times_ms"]
    info = probe_video(make_clip("vfr.mp4", **CLIPS["vfr.mp4"]))
    assert info.variable_rate
    assert info.timestamps == pytest.approx([time / 1000 for time in times], abs=1e-3)
    assert info.fps == pytest.approx(len(times) / info.duration_s, rel=0.02)
    even = probe_video(make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"]))
    assert not even.variable_rate
    assert even.fps == 24.0
    assert even.duration_s == pytest.approx(2.0)


def test_a_late_start_shows(make_clip: MakeClip, read_number: ReadNumber) -> None:
    for name, start in (("late.mp4", 1.5), ("late.mkv", 90.0)):
        path = make_clip(name, **CLIPS[name])
        info = probe_video(path)
        assert info.start_time == pytest.approx(start)
        assert info.timestamps[0] == pytest.approx(start)
        assert not info.variable_rate
        assert info.fps == pytest.approx(25.0, rel=1e-3)
        assert read_number(read_frames(path, [29]).pixels[0]) == 29


def test_ntsc_rate_in_milliseconds_is_constant(make_clip: MakeClip) -> None:
    path = make_clip("ntsc.mkv", times_ms=[round(n * 1001 / 30) for n in range(60)], fps=30, options={"g": "12"})
    info = probe_video(path)
    assert not info.variable_rate
    assert info.fps == pytest.approx(30000 / 1001, rel=2e-3)


def trimmed(source: Path, target: Path, *, start: float) -> Path:
    """Copy packets from the key frame before ``start`` seconds; an edit list hides what is before ``start``."""
    with av.open(str(source)) as old, av.open(str(target), "w") as new:
        stream = old.streams.video[0]
        copy = new.add_stream_from_template(stream)
        offset = int(start / stream.time_base)
        old.seek(offset, stream=stream)
        for packet in old.demux(stream):
            if packet.dts is None:
                continue
            packet.pts -= offset
            packet.dts -= offset
            packet.stream = copy
            new.mux(packet)
    return target


def test_an_edit_list_hides_frames(make_clip: MakeClip, read_number: ReadNumber, tmp_path: Path) -> None:
    source = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    path = trimmed(source, tmp_path / "trimmed.mp4", start=0.75)
    truth = sequential(path)
    info = probe_video(path)
    assert info.total == info.decodable == len(truth) < 48
    got = read_frames(path, range(info.decodable))
    assert [read_number(pixels) for pixels in got.pixels] == [read_number(pixels) for _, pixels in truth]
    assert got.timestamps == tuple(seconds for seconds, _ in truth)
    assert read_number(read_frames(path, [5]).pixels[0]) == read_number(truth[5][1])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("cut.mp4", {"gop": 12, "container_options": {"movflags": "faststart"}}),
        ("cut-frag.mp4", {"gop": 12, "container_options": {"movflags": "frag_keyframe+empty_moov"}}),
        ("cut.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
        ("cut.ts", {"gop": 12}),
        ("cut.mpg", {"codec": "mpeg2video", "gop": 12, "b_frames": 2, "format": "vob", "options": {"b": "4M"}}),
        ("cut.avi", {"codec": "mpeg4", "options": {"b": "2M"}}),
        ("cut.mkv", {"gop": 12}),
        ("cut.flv", {"gop": 12}),
    ],
)
@pytest.mark.parametrize("share", [0.25, 0.62, 0.97])
def test_a_truncated_file_gives_the_frames_it_holds(
    make_clip: MakeClip, read_number: ReadNumber, tmp_path: Path, name: str, how: dict[str, Any], share: float
) -> None:
    data = make_clip("whole-" + name, **how).read_bytes()
    path = tmp_path / name
    path.write_bytes(data[: int(len(data) * share)])
    info = probe_video(path)
    assert 1 <= info.decodable <= 48
    assert info.total >= info.decodable
    got = read_frames(path, range(info.decodable))
    numbers = [read_number(pixels) for pixels in got.pixels]
    assert numbers == sorted(set(numbers))
    # B-frames that lie behind the cut leave a gap of at most one group before the last reference.
    assert numbers[: info.decodable - 4] == list(range(info.decodable - 4))
    with pytest.raises(MediaDecodeError, match="frame is not in the clip"):
        read_frames(path, [info.decodable])


def test_a_truncated_file_with_its_index_in_front_says_how_many_there_were(
    make_clip: MakeClip, tmp_path: Path
) -> None:
    data = make_clip("whole-cut.mp4", gop=12, container_options={"movflags": "faststart"}).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) * 6 // 10])
    info = probe_video(tmp_path / "cut.mp4")
    assert info.total == 48 > info.decodable


def damaged(path: Path, target: Path, *, seed: int, hits: int) -> Path:
    """A copy with bytes overwritten inside the media data."""
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 8
    end = data.index(b"moov") if data.index(b"moov") > start else len(data)
    for place in np.random.default_rng(seed).integers(start + 600, end - 8, hits):
        data[place] ^= 0xFF
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("seed", range(8))
def test_damage_gives_right_frames_or_a_named_refusal(
    make_clip: MakeClip, read_number: ReadNumber, tmp_path: Path, seed: int
) -> None:
    path = damaged(make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"]), tmp_path / "damaged.mp4", seed=seed, hits=3)
    try:
        decodable = probe_video(path).decodable
    except MediaDecodeError:
        return
    truth = dict(enumerate_sequential(path))
    refused = 0
    for index in range(decodable):
        try:
            alone = read_frames(path, [index]).pixels[0]
        except MediaDecodeError:
            refused += 1
            continue
        assert (alone == truth[index]).all()
    assert refused < decodable


def enumerate_sequential(path: Path) -> list[tuple[int, Pixels]]:
    """(frame number by time, RGB) of a tolerant sequential decode in one thread."""
    found = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        step = 1 / (24 * stream.time_base)
        for packet in container.demux(stream):
            try:
                shown = packet.decode()
            except av.error.FFmpegError:
                continue
            found += [(round(frame.pts / step), frame) for frame in shown]
    return [(number, frame.to_ndarray(format="rgb24", interpolation="BICUBIC")) for number, frame in found]


def test_sparse_reading_decodes_a_fraction_of_the_clip(
    make_clip: MakeClip, read_number: ReadNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_clip("long.mp4", frames=960, codec="mpeg4", gop=24, options={"b": "2M"})
    fed = 0
    inner = video_reader.ClipReader.decode

    def count(self: Any, index: Any, segment: Any) -> Any:
        nonlocal fed
        last = max(int(index.position[number]) for number in segment.frames)
        fed += last - int(index.key_position[segment.key]) + 1
        return inner(self, index, segment)

    monkeypatch.setattr(video_reader.ClipReader, "decode", count)
    indices = [5, 250, 505, 760, 959]
    got = read_frames(path, indices)
    assert [read_number(pixels) for pixels in got.pixels] == indices
    assert fed <= 1 + 5 * 24


def test_a_decoder_that_shows_more_than_packets_announce_is_not_believed(
    make_clip: MakeClip, read_number: ReadNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    inner = video_reader.ClipReader.decode

    def twice(self: Any, index: Any, segment: Any) -> Any:
        for frame in inner(self, index, segment):
            yield frame
            yield frame

    monkeypatch.setattr(video_reader.ClipReader, "decode", twice)
    assert [read_number(pixels) for pixels in read_frames(path, [3, 4, 30]).pixels] == [3, 4, 30]


def test_errors_of_the_caller_stay_what_they_are(make_clip: MakeClip) -> None:
    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])

    def use() -> None:
        with open_clip(path) as clip:
            for _ in clip.iter_frames([1, 2]):
                raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        use()


def test_iter_frames_holds_one_frame_at_a_time(make_clip: MakeClip, read_number: ReadNumber) -> None:
    with open_clip(make_clip("long.mp4", frames=960, codec="mpeg4", gop=24, options={"b": "2M"})) as clip:
        numbers = [read_number(frame.pixels) for frame in clip.iter_frames(range(0, 960, 3))]
        assert numbers == list(range(0, 960, 3))
        first = next(clip.iter_frames([7, 3]))
        assert (first.index, read_number(first.pixels)) == (3, 3)
        assert read_number(clip.read([700]).pixels[0]) == 700


def test_the_sample_aspect_ratio_is_recorded_and_ignored(make_clip: MakeClip) -> None:
    info = probe_video(make_clip("aspect.mp4", frames=3, aspect=Fraction(4, 3)))
    assert info.sample_aspect_ratio == (4, 3)
    assert info.size == (160, 96)


def test_the_record_names_decoder_and_versions(make_clip: MakeClip) -> None:
    info = probe_video(make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"]))
    library = ".".join(map(str, av.library_versions["libavcodec"]))
    assert info.decoder == f"PyAV {av.__version__}, libavcodec {library}, h264"
    assert info.codec == "h264"


def test_frames_between_takes_both_ends(make_clip: MakeClip) -> None:
    info = probe_video(make_clip("late.mp4", **CLIPS["late.mp4"]))
    assert frames_between(info, 1.5, 1.58) == range(0, 3)
    assert frames_between(info, 1.501, 1.579) == range(1, 2)
    assert frames_between(info, 0.0, 99.0) == range(0, 30)
    assert list(frames_between(info, 0.0, 1.0)) == []
    assert list(frames_between(info, 1.501, 1.539)) == []
    assert list(frames_between(info, 2.0, 1.6)) == []


def test_limits_refuse_before_decoding(make_clip: MakeClip) -> None:
    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    for limits, problem in (
        (MediaLimits(max_pixels=160 * 96 - 1), "too many pixels"),
        (MediaLimits(max_frames=47), "too many frames"),
        (MediaLimits(max_duration_s=1.9), "too long"),
        (MediaLimits(max_streams=0), "too many streams"),
        (MediaLimits(max_bytes=100), "too large"),
    ):
        with pytest.raises(MediaDecodeError, match=problem):
            probe_video(path, limits=limits)
    exact = MediaLimits(max_pixels=160 * 96, max_frames=48, max_duration_s=2.0, max_streams=1)
    assert probe_video(path, limits=exact).decodable == 48
    with pytest.raises(MediaDecodeError, match="too large together"):
        read_frames(path, [0, 1], limits=MediaLimits(max_read_bytes=160 * 96 * 3))


def test_a_frame_size_that_changes_is_refused(make_clip: MakeClip, tmp_path: Path) -> None:
    small = make_clip("plain.ts", gop=12).read_bytes()
    large = make_clip("large.ts", gop=12, size=(320, 192)).read_bytes()
    (tmp_path / "changes.ts").write_bytes(small + large)
    last = probe_video(tmp_path / "changes.ts").decodable - 1
    assert read_frames(tmp_path / "changes.ts", [0]).size == (160, 96)
    with pytest.raises(MediaDecodeError, match="frame size changes within the clip; got '320x192'"):
        read_frames(tmp_path / "changes.ts", [0, last])


def test_a_blob_of_the_policy_and_a_data_url_read_the_same(make_clip: MakeClip) -> None:
    import base64

    path = make_clip("h264-b.mp4", **CLIPS["h264-b.mp4"])
    sources = MediaSources(SourcePolicy((path.parent,)))
    url = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()
    pixels = [read_frames(sources.open(u, kind="video"), [3, 40]).pixels for u in (path.name, url)]
    assert (pixels[0] == pixels[1]).all()
    with pytest.raises(MediaSourceError):
        sources.open("missing.mp4", kind="video")
