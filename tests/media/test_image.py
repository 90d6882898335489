# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import contextlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from nemo_gym_video.errors import MediaDecodeError
from nemo_gym_video.media.image import encode_png, probe_image, read_image
from nemo_gym_video.media.policy import MediaLimits
from nemo_gym_video.media.sources import MediaBlob, blob_from_bytes

Pixels = npt.NDArray[np.uint8]


def blob_of(image: Image.Image, format: str, **options: Any) -> MediaBlob:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return blob_from_bytes(buffer.getvalue(), url="", kind="image")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    width: int, height: int, *, depth: int = 8, colour: int = 2, data: bytes = b"", extra: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + extra
            + chunk(b"IEND", b""))  # fmt: skip


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "WEBP"])
def test_lossless_formats_give_the_pixels_that_were_written(picture: Pixels, format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    blob = blob_of(Image.fromarray(picture), format, **options)
    assert probe_image(blob).size == (60, 40)
    decoded = read_image(blob)
    assert decoded.size == (60, 40)
    assert decoded.pixels.dtype == np.uint8
    assert (decoded.pixels == picture).all()


def test_jpeg_and_single_frame_gif_open(picture: Pixels) -> None:
    flat = np.full_like(picture, 200)
    for format in ("JPEG", "GIF"):
        pixels = read_image(blob_of(Image.fromarray(flat), format)).pixels
        assert np.abs(pixels.astype(int) - 200).max() <= 2


# Where the stored picture's top-left corner stands when displayed (EXIF 2.32, tag 0x0112), as (row, column).
CORNERS = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_applied_to_size_and_pixels(format: str, orientation: int) -> None:
    stored = np.zeros((32, 48, 3), np.uint8)
    stored[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    blob = blob_of(Image.fromarray(stored), format, exif=exif)
    size = (32, 48) if orientation >= 5 else (48, 32)
    assert probe_image(blob).size == size
    decoded = read_image(blob)
    assert decoded.size == size
    assert decoded.pixels.shape == (size[1], size[0], 3)
    row, column = CORNERS[orientation]
    assert decoded.pixels[row, column].min() > 250
    assert sum(decoded.pixels[r, c].min() > 128 for r in (0, -1) for c in (0, -1)) == 1


@pytest.mark.parametrize("orientation", [1, 6, 8, 3])
def test_orientation_in_a_png_chunk_behind_the_pixels_counts(picture: Pixels, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    late = chunk(b"eXIf", exif.tobytes()[6:])
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    blob = blob_from_bytes(png(60, 40, data=rows, extra=late), url="", kind="image")
    assert probe_image(blob).orientation == orientation
    truth = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(blob.read_bytes()))))
    assert (read_image(blob).pixels == truth).all()


def test_an_orientation_out_of_range_is_none(picture: Pixels) -> None:
    for value in (0, 9, 65535):
        exif = Image.Exif()
        exif[0x0112] = value
        assert probe_image(blob_of(Image.fromarray(picture), "PNG", exif=exif)).size == (60, 40)


def test_alpha_is_composited_on_white(picture: Pixels) -> None:
    alpha = np.zeros((40, 60), np.uint8)
    alpha[:, 20:40] = 128
    alpha[:, 40:] = 255
    layered = Image.fromarray(np.dstack([picture, alpha]))
    for format in ("PNG", "TIFF"):
        pixels = read_image(blob_of(layered, format)).pixels
        assert (pixels[:, :20] == 255).all()
        assert (pixels[:, 40:] == picture[:, 40:]).all()
        half = picture[:, 20:40] * (128 / 255) + 255 * (127 / 255)
        assert np.abs(pixels[:, 20:40] - half).max() <= 1.0
    grey = Image.fromarray(np.dstack([picture[..., 0], alpha]), "LA")
    assert (read_image(blob_of(grey, "PNG")).pixels[:, :20] == 255).all()


def test_a_transparent_palette_colour_is_white() -> None:
    image = Image.new("P", (4, 2), 1)
    image.putpalette([255, 0, 0, 0, 0, 255] + [0] * 762)
    image.putpixel((0, 0), 0)
    for format in ("PNG", "GIF"):
        pixels = read_image(blob_of(image, format, transparency=0)).pixels
        assert pixels[0, 0].tolist() == [255, 255, 255]
        assert pixels[1, 1].tolist() == [0, 0, 255]
    assert read_image(blob_of(image, "PNG")).pixels[0, 0].tolist() == [255, 0, 0]


def test_a_transparent_colour_without_alpha_is_white(picture: Pixels) -> None:
    flat = picture.copy()
    flat[0, 0] = (1, 2, 3)
    pixels = read_image(blob_of(Image.fromarray(flat), "PNG", transparency=(1, 2, 3))).pixels
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert (pixels[1:] == flat[1:]).all()


def test_grey_and_one_bit_become_three_equal_channels(picture: Pixels) -> None:
    grey = picture[..., 0]
    assert (read_image(blob_of(Image.fromarray(grey), "PNG")).pixels == grey[..., None]).all()
    bits = Image.fromarray(grey > 127)
    assert (read_image(blob_of(bits, "PNG")).pixels[..., 1] == np.where(grey > 127, 255, 0)).all()


def test_sixteen_bits_keep_the_high_byte() -> None:
    deep = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
    for format in ("PNG", "TIFF"):
        pixels = read_image(blob_of(Image.fromarray(deep), format)).pixels
        assert pixels[..., 0].tolist() == [[0, 0, 1], [128, 255, 255]]
    row = np.array([[0x1234, 0xFFFF, 0x00FF]], ">u2").tobytes()
    blob = blob_from_bytes(png(1, 1, depth=16, data=b"\0" + row), url="", kind="image")
    assert read_image(blob).pixels[0, 0].tolist() == [0x12, 0xFF, 0x00]


def test_cmyk_follows_the_documented_formula() -> None:
    cmyk = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    for format, options in (("TIFF", {}), ("JPEG", {"quality": 100})):
        pixels = read_image(blob_of(cmyk, format, **options)).pixels
        assert np.abs(pixels[8, 8].astype(int) - (255, 0, 0)).max() <= 3


def test_an_icc_profile_changes_nothing(picture: Pixels) -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    blob = blob_of(Image.fromarray(picture), "PNG", icc_profile=profile)
    assert (read_image(blob).pixels == picture).all()


@pytest.mark.parametrize("mode", ["I", "F", "LAB"])
def test_samples_that_cannot_be_shown_without_a_guess_are_refused(mode: str) -> None:
    image = Image.new(mode, (8, 8))
    with pytest.raises(MediaDecodeError, match="without a guess"):
        read_image(blob_of(image, "TIFF"))


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_an_animation_is_no_still(picture: Pixels, format: str) -> None:
    frames = [Image.fromarray(np.roll(picture, shift, axis=1)) for shift in range(3)]
    blob = blob_of(frames[0], format, save_all=True, append_images=frames[1:], duration=100)
    for read in (probe_image, read_image):
        with pytest.raises(MediaDecodeError, match="is an animation"):
            read(blob)


def test_several_pages_are_refused_and_one_is_not(picture: Pixels) -> None:
    page = Image.fromarray(picture)
    with pytest.raises(MediaDecodeError, match="several pages"):
        read_image(blob_of(page, "TIFF", save_all=True, append_images=[page]))
    assert read_image(blob_of(page, "TIFF", save_all=True)).size == (60, 40)


def test_the_main_picture_of_a_multi_picture_jpeg_is_read(picture: Pixels) -> None:
    page = Image.fromarray(np.full_like(picture, 90))
    blob = blob_of(page, "MPO", save_all=True, append_images=[Image.new("RGB", (10, 10))])
    assert probe_image(blob).size == (60, 40)
    assert np.abs(read_image(blob).pixels.astype(int) - 90).max() <= 2


@pytest.mark.parametrize("size", [(8193, 4097), (100_000, 100_000), (2**31 - 1, 1), (1, 2**31 - 1)])
def test_too_many_pixels_are_refused_by_the_header(size: tuple[int, int]) -> None:
    blob = blob_from_bytes(png(*size), url="", kind="image")
    for read in (probe_image, read_image):
        with pytest.raises(MediaDecodeError):
            read(blob)


def test_the_pixel_limit_is_exact(picture: Pixels) -> None:
    blob = blob_of(Image.fromarray(picture), "PNG")
    assert read_image(blob, limits=MediaLimits(max_pixels=2400)).size == (60, 40)
    with pytest.raises(MediaDecodeError, match="too many pixels; got '60x40'; allowed: 2399 pixels"):
        probe_image(blob, limits=MediaLimits(max_pixels=2399))
    with pytest.raises(MediaDecodeError, match="too large"):
        probe_image(blob, limits=MediaLimits(max_image_bytes=10))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_truncated_or_scrambled_pictures_are_refused_and_nothing_else(picture: Pixels, format: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format)
    data = buffer.getvalue()
    with pytest.raises(MediaDecodeError):
        read_image(blob_from_bytes(data[: len(data) // 2], url="", kind="image"))
    rng = np.random.default_rng(3)
    for _ in range(60):
        broken = bytearray(data)
        for place in rng.integers(12, len(data), 8):
            broken[place] = rng.integers(256)
        blob = blob_from_bytes(bytes(broken), url="", kind="image")
        with contextlib.suppress(MediaDecodeError):
            assert read_image(blob).pixels.shape[2] == 3


def test_a_compressed_text_bomb_in_a_png_is_refused(picture: Pixels) -> None:
    bomb = chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(200 << 20)))
    head, tail = encode_png(picture)[:33], encode_png(picture)[33:]
    with pytest.raises(MediaDecodeError):
        read_image(blob_from_bytes(head + bomb + tail, url="", kind="image"))


def test_encode_png_is_lossless(picture: Pixels, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encode_png(picture))
    assert (np.asarray(Image.open(tmp_path / "x.png")) == picture).all()
    assert base64.b64encode(encode_png(picture)) == base64.b64encode(encode_png(picture))
