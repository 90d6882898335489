# SPDX-License-Identifier: Apache-2.0
"""The image formats, containers and codecs that are opened, told apart by content and never by name.

FFmpeg is given the demuxer by name, so that formats which point at other files (playlists, ``concat``, ``sdp``,
image sequences) cannot be reached by any content.
"""

from __future__ import annotations

from typing import Literal

MediaKind = Literal["image", "video"]

# Media type to Pillow's plugin name.
IMAGE_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/tiff": "TIFF",
}

# Media type to FFmpeg's demuxer.
CONTAINERS = {
    "video/mp4": "mov",
    "video/quicktime": "mov",
    "video/x-matroska": "matroska",
    "video/webm": "matroska",
    "video/x-msvideo": "avi",
    "video/mp2t": "mpegts",
    "video/mpeg": "mpeg",
    "video/x-flv": "flv",
    "image/gif": "gif",
}

CODECS = frozenset(
    {
        "h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "mpeg4", "mpeg1video", "mpeg2video", "mjpeg", "gif",
        "png", "ffv1", "prores", "rawvideo", "h263", "flv", "flv1", "msmpeg4", "msmpeg4v2", "msmpeg4v3", "huffyuv",
        "ffvhuff", "libvpx", "libvpx-vp9", "wmv1", "wmv2", "dnxhd", "theora", "cinepak", "dvvideo", "utvideo",
    }
)  # fmt: skip

SNIFF_BYTES = 4096

_QUICKTIME_BOXES = frozenset({b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
_STILL_BRANDS = {b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic",
                 b"mif1": "image/heic", b"msf1": "image/heic"}  # fmt: skip
_TS_PACKET = 188


def sniff(head: bytes) -> str | None:
    """Media type of content that starts with ``head`` (up to ``SNIFF_BYTES``); ``None`` if it is none we know."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if head.startswith(b"RIFF"):
        return {b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}.get(head[8:12])
    if head.startswith((b"II*\x00", b"MM\x00*")):
        return "image/tiff"
    if head.startswith(b"BM") and head[6:10] == b"\x00" * 4:
        return "image/bmp"
    return _sniff_video(head)


def _sniff_video(head: bytes) -> str | None:
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        return _STILL_BRANDS.get(brand, "video/quicktime" if brand == b"qt  " else "video/mp4")
    if head[4:8] in _QUICKTIME_BOXES:
        return "video/quicktime"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head[:1] == b"\x47" and head[_TS_PACKET : _TS_PACKET + 1] == b"\x47":
        return "video/mp2t"
    if head.startswith(b"\x00\x00\x01\xba"):
        return "video/mpeg"
    if head.startswith(b"FLV\x01"):
        return "video/x-flv"
    return None


def allowed_types(kind: MediaKind) -> tuple[str, ...]:
    """The media types that may be opened as ``kind``."""
    return tuple(IMAGE_FORMATS if kind == "image" else CONTAINERS)
