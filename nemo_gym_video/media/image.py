# SPDX-License-Identifier: Apache-2.0
"""Still images by Pillow: header first, displayed orientation, alpha on white, 8-bit RGB.

The colour rule: sample values are taken as they are (no ICC profile is applied); grey is repeated to three
channels; alpha and transparent colours are composited on white; CMYK and YCbCr go through Pillow's formulas;
16-bit samples keep their high byte. Animations, several pages, 32-bit samples and Lab are refused by name.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from nemo_gym_video.errors import MediaDecodeError, Where
from nemo_gym_video.media.formats import IMAGE_FORMATS
from nemo_gym_video.media.policy import MediaLimits, check_pixels
from nemo_gym_video.media.sources import MediaBlob

_ORIENTATION = 0x0112
# EXIF orientation to (swap axes, then flip rows, flip columns).
_TURNS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
_SIDEWAYS = frozenset({5, 6, 7, 8})
_PNG_CHUNK_LIMIT = 10_000
_STRIP_PIXELS = 1 << 20
# Everything Pillow's plugins are known to raise on broken content.
_PILLOW_ERRORS = (OSError, SyntaxError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError,
                  RuntimeError, EOFError, MemoryError, struct.error, zlib.error, Image.DecompressionBombError,
                  Warning)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """An image's header. ``size`` is (width, height) as displayed; ``mode`` is Pillow's name of the samples.

    ``orientation`` is the EXIF value by which the decoder's picture is turned (1: not at all).
    """

    size: tuple[int, int]
    format: str
    mode: str
    orientation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedImage:
    """An image as displayed. ``pixels`` is uint8 [height, width, 3] RGB; ``size`` is (width, height)."""

    pixels: npt.NDArray[np.uint8]
    size: tuple[int, int]


def probe_image(blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None) -> ImageInfo:
    """Read an image's header and check it against ``limits``; decodes no pixels.

    Raises:
        MediaDecodeError: broken, of an unlisted kind, or over a limit.
    """
    with _opened(blob, limits or MediaLimits(), where) as (_, info):
        return info


def read_image(blob: MediaBlob, *, limits: MediaLimits | None = None, where: Where | None = None) -> DecodedImage:
    """Decode an image to displayed RGB. Raises ``MediaDecodeError`` as ``probe_image`` does."""
    with _opened(blob, limits or MediaLimits(), where) as (image, info):
        pixels = _rgb_pixels(image, where)
    if info.orientation in _TURNS:
        swap, flip_rows, flip_columns = _TURNS[info.orientation]
        turned = pixels.transpose(1, 0, 2) if swap else pixels
        pixels = np.ascontiguousarray(turned[:: -1 if flip_rows else 1, :: -1 if flip_columns else 1])
    return DecodedImage(pixels=pixels, size=info.size)


def encode_png(pixels: npt.NDArray[np.uint8], *, compress_level: int = 1) -> bytes:
    """Lossless PNG bytes of ``pixels``, uint8 [height, width, 3] RGB."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=compress_level)
    return buffer.getvalue()


@contextmanager
def _opened(blob: MediaBlob, limits: MediaLimits, where: Where | None) -> Iterator[tuple[Image.Image, ImageInfo]]:
    name = IMAGE_FORMATS.get(blob.media_type)
    if name is None:
        raise MediaDecodeError(
            "content is no image format that is opened", code="media.type", got=blob.media_type, where=where
        )
    if blob.size_bytes > limits.max_image_bytes:
        raise MediaDecodeError("image is too large", code="media.too_large", got=f"{blob.size_bytes} bytes",
                               allowed=f"{limits.max_image_bytes} bytes", where=where)  # fmt: skip
    with blob.open_file() as file:
        try:
            late_exif = _png_exif(file) if name == "PNG" else b""
            with Image.open(file, formats=[name]) as image:
                check_pixels(image.size, limits, where)
                _check_still(image, where)
                yield image, _info(image, late_exif)
        except _PILLOW_ERRORS as error:
            reason = str(error) or type(error).__name__
            raise MediaDecodeError(f"image cannot be decoded ({reason})", where=where) from error


def _info(image: Image.Image, late_exif: bytes) -> ImageInfo:
    orientation = _orientation(image, late_exif)
    width, height = image.size
    size = (height, width) if orientation in _SIDEWAYS else (width, height)
    return ImageInfo(size=size, format=image.format or "", mode=image.mode, orientation=orientation)


def _orientation(image: Image.Image, late_exif: bytes) -> int:
    """The EXIF (else XMP) orientation that is still to be applied, 1..8; 1 is none."""
    if image.format == "TIFF":
        return 1  # Pillow's TIFF reader applies it itself, to size and pixels.
    if image.format == "PNG" and not {"exif", "Raw profile type exif", "XML:com.adobe.xmp"} & image.info.keys():
        # Pillow would decode the whole picture here to look behind its pixels.
        if not late_exif:
            return 1
        exif = Image.Exif()
        exif.load(late_exif)
    else:
        exif = image.getexif()
    value: Any = exif.get(_ORIENTATION, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _png_exif(file: BinaryIO) -> bytes:
    """The PNG's eXIf chunk wherever it stands, by walking chunk headers; rewinds ``file``."""
    found = b""
    file.seek(8)
    for _ in range(_PNG_CHUNK_LIMIT):
        header = file.read(8)
        if len(header) < 8 or header[4:] == b"IEND":
            break
        length = int.from_bytes(header[:4])
        if header[4:] == b"eXIf" and length < 1 << 20:
            found = file.read(length)
            break
        file.seek(length + 4, io.SEEK_CUR)
    file.seek(0)
    return found


def _check_still(image: Image.Image, where: Where | None) -> None:
    # A phone's MPO is a JPEG with extra pictures behind the main one, not an animation.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        if image.format == "TIFF":
            raise MediaDecodeError("image holds several pages", where=where)
        raise MediaDecodeError("image is an animation; send it as a video (GIF) or send one frame", where=where)


def _rgb_pixels(image: Image.Image, where: Where | None) -> npt.NDArray[np.uint8]:
    """The picture as stored, uint8 [height, width, 3]; converted in strips, so that no whole copy is made."""
    width, height = image.size
    wide = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
    if not wide and image.mode in ("I", "F", "LAB", "HSV"):
        raise MediaDecodeError("image samples cannot be shown without a guess", got=image.mode,
                               allowed="8 or 16 bits a sample, grey, palette, RGB, YCbCr or CMYK",
                               where=where)  # fmt: skip
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        if wide:
            pixels[top : top + rows] = (np.asarray(strip).astype(np.int64) >> 8).clip(0, 255)[..., None]
        else:
            pixels[top : top + rows] = np.asarray(_to_rgb(strip))
    return pixels


def _to_rgb(image: Image.Image) -> Image.Image:
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        layered = image.convert("RGBA")
        ground = Image.new("RGB", layered.size, (255, 255, 255))
        ground.paste(layered, mask=layered.getchannel("A"))
        return ground
    return image.convert("RGB")
