# SPDX-License-Identifier: Apache-2.0
"""Names for media assets, worked out only when somebody asks.

An id is, in this order:

1. the one that the rollout recorded for the reference (``media_assets``, or the contract's content digest);
2. for a data URL ``sha256:<hex>`` over the decoded bytes, read in pieces, so that the picture is never copied
   as a whole. A picture sent by path and recorded by its content digest is the same asset;
3. else ``ref:sha256:<hex>`` over the reference itself: the file is not opened, so nothing is known of its bytes.
   A file URI counts as the path it names.

Frames that travel one by one, tagged or in a manifest, are one asset: ``sha256:`` (or ``ref:sha256:`` if any
frame has no content digest) over the frames' ids in order, as the contract makes its digest.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from nemo_gym_video.messages import FrameManifest, MediaKind, is_manifest_url

_PIECE = 1 << 18  # characters of base64 decoded at a time; a multiple of 4
_CONTENT = "sha256:"
_REFERENCE = "ref:sha256:"


class MediaRef:
    """A reference to media as the messages give it, without opening it.

    ``urls`` holds one URL or path, or one a tagged frame. ``source`` is what a person would call it.

    >>> from nemo_gym_video import MediaRef
    >>> MediaRef("image", ("data:image/png;base64,iVBORw0KGgo=",)).media_id[:19]
    'sha256:4c4b6a3be131'
    >>> MediaRef("video", ("clips/cat.mp4",)).media_id.startswith("ref:sha256:")
    True
    """

    __slots__ = ("_media_id", "kind", "source", "tagged", "urls")

    def __init__(
        self,
        kind: MediaKind,
        urls: tuple[str, ...],
        *,
        source: str | None = None,
        tagged: bool = False,
        media_id: str | None = None,
    ) -> None:
        """``media_id`` is the recorded id, where there is one."""
        self.kind = kind
        self.urls = urls
        self.tagged = tagged
        self.source = urls[0] if source is None else source
        self._media_id = media_id

    @property
    def media_id(self) -> str:
        """The asset's id, computed once."""
        if self._media_id is None:
            urls = self.urls
            if not self.tagged and is_manifest_url(urls[0]):
                urls = FrameManifest.from_url(urls[0]).frame_paths
            if self.tagged or urls is not self.urls:
                self._media_id = frames_id([reference_id(url) for url in urls])
            else:
                self._media_id = reference_id(urls[0])
        return self._media_id

    def __repr__(self) -> str:
        """Short, whatever the length of the URL."""
        return f"MediaRef({self.kind!r}, {len(self.urls)} url(s), source={self.source[:80]!r})"


def frames_id(ids: list[str]) -> str:
    """One id for frames that are one video."""
    digest = hashlib.sha256()
    for frame_id in ids:
        digest.update(frame_id.encode("utf-8", "surrogatepass"))
    known = all(frame_id.startswith(_CONTENT) for frame_id in ids)
    return (_CONTENT if known else _REFERENCE) + digest.hexdigest()


def reference_id(url: str) -> str:
    """Id of one URL or path: over its bytes for a data URL, over the reference for anything else."""
    if url[:5].lower() == "data:":
        digest = _data_url_digest(url)
        if digest is not None:
            return _CONTENT + digest
    return _REFERENCE + _text_digest(reference_key(url))


def reference_key(url: str) -> str:
    """What two references to one file have in common: a local file URI becomes its path."""
    if url[:5].lower() != "file:":
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return unquote(parts.path) if parts.netloc in ("", "localhost") else url


class RecordedIds:
    """Ids from a rollout's ``media_assets``, found by the reference that the asset was sent as.

    Takes a mapping of id to asset, as nemo-gym writes it, or a list of assets. An asset names the part that was
    sent as ``source_part``; without one, ``source`` names what was sent as tagged frames. Images in data URLs are
    left out, their bytes are at hand. Whatever has another shape is passed over: recorded evidence helps, it
    does not decide.
    """

    def __init__(self, *recorded: object) -> None:
        """``recorded`` are values of ``media_assets``; of two that name one reference the last counts."""
        self._ids: dict[tuple[bool, str], str] = {}
        for media_assets in recorded:
            assets = list(media_assets.values()) if isinstance(media_assets, Mapping) else media_assets
            for asset in assets if isinstance(assets, list) else ():
                if isinstance(asset, Mapping):
                    self._add(asset)

    def find(self, reference: str, *, tagged: bool) -> str | None:
        """The id of what was sent as ``reference``: one URL, or the source of tagged frames."""
        if not self._ids or _is_picture_data(reference):
            return None
        return self._ids.get((tagged, reference_key(reference)))

    def _add(self, asset: Mapping[str, object]) -> None:
        media_id, part = asset.get("media_id"), asset.get("source_part")
        given: list[object] = []
        if isinstance(part, Mapping):
            for name in ("image_url", "video_url", "image", "video"):
                value = part.get(name)
                given.append(value.get("url") if isinstance(value, Mapping) else value)
        else:
            given.append(asset.get("source"))
        for url in given:
            if isinstance(media_id, str) and isinstance(url, str) and not _is_picture_data(url):
                self._ids[not isinstance(part, Mapping), reference_key(url)] = media_id


def _is_picture_data(url: str) -> bool:
    """Whether ``url`` is a data URL with content in it, too long to look up."""
    return url[:5].lower() == "data:" and not is_manifest_url(url)


def _text_digest(text: str) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(text), _PIECE):
        digest.update(text[start : start + _PIECE].encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _data_url_digest(url: str) -> str | None:
    """Digest of a data URL's content; None when it cannot be decoded."""
    comma = url.find(",", 5)
    if comma < 0:
        return None
    if not url[5:comma].lower().rstrip().endswith(";base64"):
        return hashlib.sha256(unquote_to_bytes(url[comma + 1 :])).hexdigest()
    digest = hashlib.sha256()
    try:
        for start in range(comma + 1, len(url), _PIECE):
            piece = url[start : start + _PIECE]
            if "=" in piece and start + _PIECE < len(url):
                return None
            digest.update(base64.b64decode(piece, validate=True))
    except (binascii.Error, ValueError):
        return None
    return digest.hexdigest()
