# SPDX-License-Identifier: Apache-2.0
"""Odd media, each named for what is odd: the right frames or the right named refusal.

Every file is read by a child that may use 512 MiB of address space and five seconds.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import av
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from nemo_gym_video.errors import NemoGymVideoError
from nemo_gym_video.media.decoder import BoundedDecoder
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources

Pixels = npt.NDArray[np.uint8]
MakeClip = Callable[..., Path]

MEMORY = 512 << 20
SECONDS = 5.0


class Odd(NamedTuple):
    """How to make a file, and what it must give: a refusal's words, or its size and frame numbers."""

    kind: Literal["image", "video"]
    make: Callable[[MakeClip, Path], bytes]
    refusal: str | None = None
    size: tuple[int, int] = (160, 96)
    numbers: list[int] | None = None


CORPUS: dict[str, Odd] = {}


def odd(
    name: str,
    *,
    kind: Literal["image", "video"] = "video",
    refusal: str | None = None,
    size: tuple[int, int] = (160, 96),
    numbers: list[int] | None = None,
) -> Callable[[Callable[[MakeClip, Path], bytes]], Callable[[MakeClip, Path], bytes]]:
    def add(make: Callable[[MakeClip, Path], bytes]) -> Callable[[MakeClip, Path], bytes]:
        CORPUS[name] = Odd(kind, make, refusal, size, numbers)
        return make

    return add


def plain(make: MakeClip, **how: Any) -> bytes:
    options: dict[str, Any] = {"frames": 24, "gop": 8} | how
    key = "-".join(f"{name}={value}" for name, value in sorted(options.items())).replace("/", "_")
    suffix = options.pop("suffix", "mp4")
    return make(f"corpus-{zlib.crc32(key.encode()):08x}.{suffix}", **options).read_bytes()


def content(data: bytes) -> Callable[[MakeClip, Path], bytes]:
    return lambda make, folder: data


def clip(**how: Any) -> Callable[[MakeClip, Path], bytes]:
    return lambda make, folder: plain(make, **how)


def picture_bytes(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def remux(make: MakeClip, folder: Path, suffix: str, change: Callable[[Any, int], Any], **options: Any) -> bytes:
    """Copy the plain clip's packets through ``change(packet, place)``; what it gives back as None is dropped."""
    path = folder / f"remuxed.{suffix}"
    with av.open(io.BytesIO(plain(make))) as old, av.open(str(path), "w", **options) as new:
        copy = new.add_stream_from_template(old.streams.video[0])
        new.start_encoding()
        for place, packet in enumerate(old.demux(video=0)):
            if packet.dts is None:
                continue
            packet.stream = copy
            if (changed := change(packet, place)) is not None:
                new.mux(changed)
    return path.read_bytes()


ALL = list(range(24))

# Not videos at all.
odd("empty.mp4", refusal="media is empty")(content(b""))
odd("one-byte.mp4", refusal="no video format")(content(b"\0"))
odd("error-page.mp4", refusal="no video format")(content(b"<!DOCTYPE html><html>403 Forbidden</html>"))
odd("git-lfs-pointer.mp4", refusal="no video format")(content(b"version https://git-lfs.github.com/spec/v1\n"))
odd("zeros.mp4", refusal="no video format")(content(bytes(4096)))
odd("playlist.mp4", refusal="no video format")(content(b"#EXTM3U\n#EXTINF:9,\nfile:///etc/passwd\n"))
odd("concat-script.mp4", refusal="no video format")(content(b"ffconcat version 1.0\nfile /etc/passwd\n"))
odd("session-description.mp4", refusal="no video format")(content(b"v=0\nm=video 5004 RTP/AVP 96\n"))
odd("a-png.mp4", refusal="no video format")(lambda m, f: picture_bytes(Image.new("RGB", (9, 9)), "PNG"))
odd("a-jpeg.mp4", refusal="no video format")(lambda m, f: picture_bytes(Image.new("RGB", (9, 9)), "JPEG"))
odd("a-zip.mp4", refusal="no video format")(content(b"PK\x03\x04" + bytes(100)))
odd("header-only.mp4", refusal="cannot be decoded")(content(b"\0\0\0\x18ftypisom\0\0\2\0isomiso2"))
odd("header-then-noise.mp4", refusal="video cannot be decoded")(
    content(b"\0\0\0\x18ftypisom\0\0\2\0isomiso2" + np.random.default_rng(0).bytes(20_000))
)
odd("ebml-then-noise.webm", refusal="video cannot be decoded")(
    content(b"\x1a\x45\xdf\xa3" + np.random.default_rng(1).bytes(20_000))
)
odd("riff-then-noise.avi", refusal="video")(
    content(b"RIFF\xff\xff\0\0AVI " + np.random.default_rng(2).bytes(9000))
)
odd("sync-bytes-only.ts", refusal="video")(content((b"\x47" + bytes(187)) * 50))
odd("box-of-4-gigabytes.mp4", refusal="video")(content(b"\0\0\0\x18ftypisom\0\0\2\0isomiso2\xff\xff\xff\xffmoov"))

# No usable picture.
odd("without-moov.mp4", refusal="video cannot be decoded")(lambda m, f: plain(m)[: len(plain(m)) // 2])


@odd("sound-only.mp4", refusal="no video stream")
def _(make: MakeClip, folder: Path) -> bytes:
    path = folder / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 48000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path.read_bytes()


@odd("cover-art-only.mp4", refusal="no video stream")
def _(make: MakeClip, folder: Path) -> bytes:
    path = folder / "cover.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=1)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuvj420p"
        stream.disposition = av.stream.Disposition.attached_pic
        container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((96, 160, 3), np.uint8), "rgb24")))
        container.mux(stream.encode())
    return path.read_bytes()


@odd("too-many-streams.mkv", refusal="too many streams")
def _(make: MakeClip, folder: Path) -> bytes:
    path = folder / "many.mkv"
    with av.open(str(path), "w") as container:
        streams = [container.add_stream("mpeg4", rate=24) for _ in range(20)]
        for stream in streams:
            stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for stream in streams:
            frame = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), "rgb24")
            container.mux(stream.encode(frame))
            container.mux(stream.encode())
    return path.read_bytes()


odd("unlisted-codec.mkv", refusal="codec is not one that is decoded")(
    clip(suffix="mkv", codec="snow", pix_fmt="yuv420p", gop=None)
)


@odd("no-frames.mp4", refusal="video")
def _(make: MakeClip, folder: Path) -> bytes:
    return remux(make, folder, "mp4", lambda packet, place: None)


@odd("no-key-frame.mkv", refusal="no frame that can be decoded")
def _(make: MakeClip, folder: Path) -> bytes:
    def change(packet: Any, place: int) -> Any:
        return None if packet.is_keyframe else packet

    return remux(make, folder, "mkv", change)


@odd("pixel-bomb.avi", refusal="pixels")
def _(make: MakeClip, folder: Path) -> bytes:
    data = bytearray(plain(make, suffix="avi", codec="rawvideo", pix_fmt="bgr24", frames=1, gop=None))
    at = data.index(b"strf") + 8
    struct.pack_into("<ii", data, at + 4, 60_000, 60_000)
    return bytes(data)


@odd("points-at-another-file.mov", refusal="no frame that can be decoded")
def _(make: MakeClip, folder: Path) -> bytes:
    """The track's data reference is an alias to the path of a sound clip, not "in this file"."""
    target = str(folder / "target.mov").encode()
    Path(target.decode()).write_bytes(plain(make))
    path = target + bytes(len(target) % 2)
    record = (bytes(10) + bytes(28) + bytes(12) + bytes(64) + bytes(16) + struct.pack(">HH", 1, 1) + bytes(16)
              + struct.pack(">HH", 2, len(path)) + path + struct.pack(">HH", 0xFFFF, 0))  # fmt: skip
    entry = struct.pack(">I4sI", 12 + len(record), b"alis", 0) + record
    data = bytearray(plain(make))
    at = data.index(b"dref") + 12
    grown = len(entry) - int.from_bytes(data[at : at + 4])
    data[at : at + int.from_bytes(data[at : at + 4])] = entry
    for box in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"):
        place = data.index(box) - 4
        data[place : place + 4] = (int.from_bytes(data[place : place + 4]) + grown).to_bytes(4)
    return bytes(data)


# Odd, and right.
odd("webm-named.mp4", numbers=ALL)(clip(suffix="webm", codec="libvpx-vp9", options={"deadline": "realtime"}))
odd("one-frame.mp4", numbers=[0])(clip(frames=1))
odd("two-frames.mp4", numbers=[0, 1])(clip(frames=2))
odd("without-count-or-duration.webm", numbers=ALL)(
    clip(suffix="webm", codec="libvpx-vp9", options={"deadline": "realtime"}, container_options={"live": "1"})
)
odd("fragmented.mp4", numbers=ALL)(clip(container_options={"movflags": "frag_keyframe+empty_moov"}))
odd("index-in-front.mp4", numbers=ALL)(clip(container_options={"movflags": "faststart"}))
odd("variable-rate.mp4", numbers=list(range(8)))(clip(times_ms=[0, 10, 20, 500, 2000, 2001, 2002, 9000]))
odd("one-frame-a-minute.mkv", numbers=list(range(5)))(clip(suffix="mkv", times_ms=[60_000 * n for n in range(5)]))
odd("thousand-frames-a-second.mkv", numbers=list(range(20)))(clip(suffix="mkv", times_ms=list(range(20))))
odd("late-start.mp4", numbers=list(range(10)))(clip(times_ms=[5000 + 40 * n for n in range(10)]))
odd("turned.mp4", size=(96, 160))(clip(rotate=90))
odd("upside-down.mp4")(clip(rotate=180))
odd("wide-pixels.mp4", numbers=ALL)(clip(aspect=Fraction(64, 45)))
odd("odd-size.mp4", size=(161, 97), numbers=ALL)(clip(size=(161, 97), codec="mpeg4", options={"b": "2M"}))
odd("ten-bits.mkv", numbers=ALL)(clip(suffix="mkv", pix_fmt="yuv420p10le"))
odd("full-chroma.mkv", numbers=ALL)(clip(suffix="mkv", pix_fmt="yuv444p"))
odd("full-range.avi", numbers=ALL)(clip(suffix="avi", codec="mjpeg", pix_fmt="yuvj420p", gop=None))
odd("interlaced.mp4", numbers=ALL)(clip(options={"x264-params": "tff=1:keyint=8"}))
odd("open-groups.mp4", numbers=ALL)(clip(options={"x264-params": "open-gop=1:keyint=8:bframes=3"}))
odd("no-key-frames-but-one.mp4", numbers=ALL)(clip(options={"x264-params": "intra-refresh=1:keyint=8"}))
odd("animated.gif", numbers=ALL)(clip(suffix="gif", codec="gif", pix_fmt="gray", fps=25, gop=None))
odd("still.gif", numbers=[0])(clip(suffix="gif", codec="gif", pix_fmt="gray", fps=25, gop=None, frames=1))
odd("alternate-references.webm", numbers=list(range(60)))(
    clip(suffix="webm", codec="libvpx", frames=60, gop=None,
         options={"auto-alt-ref": "1", "lag-in-frames": "12", "deadline": "good", "cpu-used": "4", "b": "200k"})
)  # fmt: skip
odd("sound-first.mkv", numbers=ALL)(clip(suffix="mkv", audio=True))
odd("junk-behind.mp4", numbers=ALL)(lambda m, f: plain(m) + np.random.default_rng(5).bytes(5000))
odd("junk-in-front.ts", numbers=ALL)(lambda m, f: plain(m, suffix="ts")[:188] * 3 + plain(m, suffix="ts"))


@odd("starts-inside-a-group.ts", numbers=list(range(8, 24)))
def _(make: MakeClip, folder: Path) -> bytes:
    return remux(make, folder, "ts", lambda packet, place: packet if place > 3 else None)


@odd("hidden-by-edit-list.mp4")
def _(make: MakeClip, folder: Path) -> bytes:
    def change(packet: Any, place: int) -> Any:
        packet.pts -= 3 * 512
        packet.dts -= 3 * 512
        return packet

    return remux(make, folder, "mp4", change)


@odd("equal-times.mkv", numbers=ALL)
def _(make: MakeClip, folder: Path) -> bytes:
    """Two frames share each time, so packets cannot tell the frames apart."""
    path = folder / "equal.mkv"
    source = plain(make, codec="mpeg4", b_frames=0, options={"b": "2M"})
    with av.open(io.BytesIO(source)) as old, av.open(str(path), "w") as new:
        copy = new.add_stream_from_template(old.streams.video[0])
        for place, packet in enumerate(old.demux(video=0)):
            if packet.dts is not None:
                packet.pts = packet.dts = place // 2 * 1024
                packet.stream = copy
                new.mux(packet)
    return path.read_bytes()


@odd("cut-off.ts")
def _(make: MakeClip, folder: Path) -> bytes:
    data = plain(make, suffix="ts")
    return data[: len(data) * 2 // 3]


@odd("cut-off.webm")
def _(make: MakeClip, folder: Path) -> bytes:
    data = plain(make, suffix="webm", codec="libvpx-vp9", options={"deadline": "realtime"})
    return data[: len(data) * 2 // 3]


@odd("two-pictures.mp4", numbers=ALL)
def _(make: MakeClip, folder: Path) -> bytes:
    path = folder / "two.mp4"
    with av.open(io.BytesIO(plain(make))) as old, av.open(str(path), "w") as new:
        first = new.add_stream_from_template(old.streams.video[0])
        second = new.add_stream("mpeg4", rate=24)
        second.width, second.height, second.pix_fmt = 320, 192, "yuv420p"
        new.mux(second.encode(av.VideoFrame.from_ndarray(np.zeros((192, 320, 3), np.uint8), "rgb24")))
        new.mux(second.encode())
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = first
                new.mux(packet)
    return path.read_bytes()


# Stills.
def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


STILL = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 60, 3), dtype=np.uint8))

odd("empty.png", kind="image", refusal="media is empty")(content(b""))
odd("vector.png", kind="image", refusal="no image format")(content(b"<svg xmlns='http://www.w3.org/2000/svg'/>"))
odd("icon.png", kind="image", refusal="no image format")(lambda m, f: picture_bytes(STILL, "ICO"))
odd("postscript.png", kind="image", refusal="no image format")(content(b"%!PS-Adobe-3.0 EPSF-3.0\n"))
odd("pixel-bomb.png", kind="image", refusal="pixels|bomb")(content(png_header(50_000, 50_000)))
odd("pixel-bomb.gif", kind="image", refusal="pixels|bomb")(
    lambda m, f: b"GIF89a\xff\xff\xff\xff" + picture_bytes(STILL, "GIF")[10:]
)
odd("no-pixels.png", kind="image", refusal="image")(content(png_header(0, 0)))
odd("cut-off.jpg", kind="image", refusal="image cannot be decoded")(
    lambda m, f: picture_bytes(STILL, "JPEG")[:700]
)
odd("cut-off.png", kind="image", refusal="image cannot be decoded")(
    lambda m, f: picture_bytes(STILL, "PNG")[:3000]
)
odd("moving.gif", kind="image", refusal="is an animation")(
    lambda m, f: picture_bytes(STILL, "GIF", save_all=True, append_images=[STILL.rotate(180)])
)
odd("moving.webp", kind="image", refusal="is an animation")(
    lambda m, f: picture_bytes(STILL, "WEBP", save_all=True, append_images=[STILL.rotate(180)])
)
odd("pages.tiff", kind="image", refusal="several pages")(
    lambda m, f: picture_bytes(STILL, "TIFF", save_all=True, append_images=[STILL])
)
odd("float-samples.tiff", kind="image", refusal="without a guess")(
    lambda m, f: picture_bytes(Image.new("F", (9, 9)), "TIFF")
)
odd("print-colours.jpg", kind="image", size=(60, 40))(lambda m, f: picture_bytes(STILL.convert("CMYK"), "JPEG"))
odd("sixteen-bits.png", kind="image", size=(9, 5))(
    lambda m, f: picture_bytes(Image.fromarray(np.zeros((5, 9), np.uint16)), "PNG")
)
odd("one-pixel.png", kind="image", size=(1, 1))(lambda m, f: picture_bytes(Image.new("RGB", (1, 1)), "PNG"))
odd("a-line.png", kind="image", size=(30_000, 1))(lambda m, f: picture_bytes(Image.new("RGB", (30_000, 1)), "PNG"))
odd("largest-allowed.png", kind="image", size=(8192, 4096))(
    lambda m, f: picture_bytes(Image.new("L", (8192, 4096)), "PNG")
)


@odd("turned.jpg", kind="image", size=(40, 60))
def _(make: MakeClip, folder: Path) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return picture_bytes(STILL, "JPEG", exif=exif)


@pytest.fixture(scope="module")
def decoder() -> Iterator[BoundedDecoder]:
    with BoundedDecoder(workers=1, timeout_s=SECONDS, memory_bytes=MEMORY) as bounded:
        yield bounded


def test_there_are_enough() -> None:
    assert len([name for name, item in CORPUS.items() if item.kind == "video"]) >= 40
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("name", CORPUS)
def test_odd_media_give_the_right_frames_or_the_right_refusal(
    decoder: BoundedDecoder, make_clip: MakeClip, read_number: Callable[[Pixels], int], tmp_path: Path, name: str
) -> None:
    item = CORPUS[name]
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / name).write_bytes(item.make(make_clip, tmp_path))
    sources = MediaSources(SourcePolicy((tmp_path / "media",)))

    def read() -> tuple[tuple[int, int], list[Pixels]]:
        blob = sources.open(name, kind=item.kind)
        if item.kind == "image":
            assert decoder.probe_image(blob).size == decoder.read_image(blob).size
            return decoder.probe_image(blob).size, []
        info = decoder.probe_video(blob)
        frames = decoder.read_frames(blob, range(info.decodable))
        assert info.decodable <= info.total
        assert len(frames.timestamps) == info.decodable
        assert list(frames.timestamps) == sorted(frames.timestamps)
        return info.size, list(frames.pixels)

    if item.refusal is not None:
        with pytest.raises(NemoGymVideoError, match=item.refusal) as refused:
            read()
        assert "too long" not in str(refused.value)
        assert "process failed" not in str(refused.value)
        return
    size, frames = read()
    assert size == item.size
    if item.numbers is not None:
        assert [read_number(frame) for frame in frames] == item.numbers
    elif size == (160, 96) and name != "upside-down.mp4":
        numbers = [read_number(frame) for frame in frames]
        # B-frames behind a cut are missing before the last frames that refer to them.
        assert numbers == sorted(set(numbers))
        assert numbers[:-4] == list(range(numbers[0], numbers[0] + len(numbers) - 4))
        assert len(numbers) >= 8
