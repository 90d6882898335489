# SPDX-License-Identifier: Apache-2.0
"""The only place that opens media: files under the configured roots, and data URLs. Everything else is refused.

A reference is a plain path (taken as it stands, never percent-decoded), a ``file:`` URI (decoded once), or a
base64 data URL. The root check is made on the opened file, so a link that changes between check and open cannot
lead out. Reading blocks; call it off an event loop.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, Where
from nemo_gym_video.media.files import FileIdentity, open_beneath, open_regular
from nemo_gym_video.media.formats import SNIFF_BYTES, MediaKind, allowed_types, sniff
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.messages import is_manifest_url, short_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_DOTS = frozenset({"%2e", "%2e%2e", ".%2e", "%2e."})
_DATA_HEAD_LIMIT = 256
_DIGEST_CACHE_LIMIT = 65_536
_FORMS = "a path or file: URI under the media roots, or a base64 data: URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBlob:
    """Media that the policy has let in: its bytes (``data``) or its real path and the identity of the file.

    ``digest`` is ``sha256:<hex>`` of the content bytes, whatever the reference looked like. ``media_type`` is
    told from the content.
    """

    url: str
    path: Path | None
    data: bytes | None
    digest: str
    size_bytes: int
    media_type: str
    identity: FileIdentity | None = None

    def open_file(self) -> BinaryIO:
        """The content as a binary file; ``MediaSourceError`` if the file is no longer the one let in."""
        if self.data is not None:
            return io.BytesIO(self.data)
        assert self.path is not None
        return os.fdopen(open_regular(self.path, identity=self.identity), "rb")

    def read_bytes(self) -> bytes:
        """The whole content."""
        if self.data is not None:
            return self.data
        with self.open_file() as file:
            return file.read(self.size_bytes)

    def __repr__(self) -> str:
        """Short: never the data."""
        return f"MediaBlob({short_url(self.url)!r}, {self.media_type}, {self.size_bytes} bytes, {self.digest})"


class MediaSources:
    """Opens media references under one policy. Safe to share between threads.

    >>> from nemo_gym_video import MediaSources, SourcePolicy
    >>> blob = MediaSources(SourcePolicy()).open("data:image/gif;base64,R0lGODlhAQABAAAAACw=", kind="image")
    >>> blob.media_type, blob.size_bytes
    ('image/gif', 14)
    """

    def __init__(self, policy: SourcePolicy) -> None:
        """Resolve the roots once; a root that is no folder is a ``MediaSourceError``."""
        self.policy = policy
        self._roots = tuple(_real_root(root) for root in policy.roots)
        self._digests: dict[FileIdentity, str] = {}
        self._fetched: dict[str, str] = {}

    def remember(self, url: str, path: Path) -> None:
        """Let ``url`` stand for the file at ``path``, which holds what was fetched from it under this policy.

        The file is opened as any other: it must lie below a root.
        """
        if len(self._fetched) >= _DIGEST_CACHE_LIMIT:
            self._fetched.clear()
        self._fetched[url] = os.path.abspath(path)

    def open(self, url: str, *, kind: MediaKind, where: Where | None = None) -> MediaBlob:
        """Let ``url`` in as an image or a video, or say by name why not.

        Raises:
            MediaSourceError: the reference is not one that the policy allows.
            MediaDecodeError: the content is empty, too large, or of a format that is not on the list.
        """
        limits = self.policy.limits
        if _is_data_url(url):
            return blob_from_bytes(_decode_data_url(url, kind, limits, where), url=url, kind=kind, where=where)
        limit = limits.max_image_bytes if kind == "image" else limits.max_bytes
        descriptor, real = self._open_path(url, where)
        with os.fdopen(descriptor, "rb") as file:
            identity = FileIdentity.of(descriptor)
            _check_size(identity.size, limit, where)
            media_type = _check_type(file.read(SNIFF_BYTES), kind, where)
            digest = self._digest(file, identity)
        return MediaBlob(url=url, path=real, data=None, digest=digest, size_bytes=identity.size,
                         media_type=media_type, identity=identity)  # fmt: skip

    def local_path(self, url: str, where: Where | None = None) -> Path:
        """The real path of a reference to a file (not a data URL), after every check that ``open`` makes on it."""
        if _is_data_url(url):
            raise MediaSourceError(
                "a data URL has no path", code="media.data_url", got=short_url(url), where=where
            )
        descriptor, real = self._open_path(url, where)
        os.close(descriptor)
        return real

    def _open_path(self, url: str, where: Where | None) -> tuple[int, Path]:
        path = self._fetched.get(url) or _reference_path(url, where)
        if not self._roots:
            raise MediaSourceError(
                "no media root is configured, so no file may be opened", code="media.no_root", got=url, where=where
            )
        if not os.path.isabs(path):
            for root in self._roots:
                if os.path.lexists(os.path.join(root, path)):
                    return open_beneath(os.path.join(root, path), self._roots, shown=url, where=where)
            path = os.path.join(self._roots[0], path)
        return open_beneath(path, self._roots, shown=url, where=where)

    def _digest(self, file: BinaryIO, identity: FileIdentity) -> str:
        known = self._digests.get(identity)
        if known is not None:
            return known
        file.seek(0)
        digest = "sha256:" + hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
        if len(self._digests) >= _DIGEST_CACHE_LIMIT:
            self._digests.clear()
        self._digests[identity] = digest
        return digest


def trusted_sources(*, limits: MediaLimits | None = None) -> MediaSources:
    """The trusted entrance: any local file. Only for ``prepare/``, where the user names the files to read."""
    return MediaSources(SourcePolicy((Path("/"),), limits or MediaLimits()))


def blob_from_bytes(data: bytes, *, url: str, kind: MediaKind, where: Where | None = None) -> MediaBlob:
    """A blob of bytes that have already been let in (a data URL's, a checked fetch's)."""
    if not data:
        raise MediaDecodeError("media is empty", code="media.empty", where=where)
    media_type = _check_type(data[:SNIFF_BYTES], kind, where)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    return MediaBlob(url=url, path=None, data=data, digest=digest, size_bytes=len(data), media_type=media_type)


def blob_from_path(
    path: Path, *, kind: MediaKind, limits: MediaLimits | None = None, where: Where | None = None
) -> MediaBlob:
    """A blob of a file that the caller vouches for (a command's argument): no root, every other check."""
    return trusted_sources(limits=limits).open(os.path.abspath(path), kind=kind, where=where)


def _real_root(root: Path) -> str:
    try:
        real = os.path.realpath(root, strict=True)
    except (OSError, ValueError) as error:
        raise MediaSourceError("media root does not exist", code="media.no_root", got=str(root)) from error
    if not os.path.isdir(real):
        raise MediaSourceError("media root is no folder", code="media.no_root", got=str(root))
    return real


def _is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def _reference_path(url: str, where: Where | None) -> str:
    """The path that a plain path or a ``file:`` URI names; refuses everything that is neither."""
    shown = short_url(url)
    if not url:
        raise MediaSourceError("media reference is empty", code="media.reference", allowed=_FORMS, where=where)
    path = _file_uri_path(url, where) if url[:5].lower() == "file:" else url
    if path is url and _SCHEME.match(url):
        scheme = url.partition(":")[0].lower()
        raise MediaSourceError(
            f"{scheme} URLs are not opened", code="media.reference", got=shown, allowed=_FORMS, where=where
        )
    if "\x00" in path:
        raise MediaSourceError("path holds a NUL byte", code="media.reference", got=shown, where=where)
    for component in path.split("/"):
        if component == ".." or component.lower() in _ENCODED_DOTS:
            raise MediaSourceError("path climbs with '..'", code="media.reference", got=shown, where=where)
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise MediaSourceError(
            "path is no valid file name", code="media.reference", got=shown, where=where
        ) from error
    return path


def _file_uri_path(url: str, where: Where | None) -> str:
    rest = url[5:]
    if rest.startswith("//"):
        authority, _, tail = rest[2:].partition("/")
        if authority:
            raise MediaSourceError(
                "file URI names a host",
                code="media.reference",
                got=url,
                allowed="file:///absolute/path",
                where=where,
            )
        rest = "/" + tail
    if not rest.startswith("/"):
        raise MediaSourceError(
            "file URI is not absolute",
            code="media.reference",
            got=url,
            allowed="file:///absolute/path",
            where=where,
        )
    if "?" in rest or "#" in rest:
        raise MediaSourceError(
            "file URI holds a query or fragment",
            code="media.reference",
            got=url,
            allowed="%3F and %23 in a file name",
            where=where,
        )
    if _BAD_ESCAPE.search(rest):
        raise MediaSourceError(
            "file URI holds a malformed escape",
            code="media.reference",
            got=url,
            allowed="%25 for a '%'",
            where=where,
        )
    try:
        encoded = rest.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise MediaSourceError(
            "path is no valid file name", code="media.reference", got=url, where=where
        ) from error
    return os.fsdecode(unquote_to_bytes(encoded))


def _decode_data_url(url: str, kind: MediaKind, limits: MediaLimits, where: Where | None) -> bytes:
    if is_manifest_url(url):
        raise MediaSourceError(
            "a cached-frame manifest is no media file; it is read with media.manifest",
            code="media.reference",
            where=where,
        )
    comma = url.find(",", 0, _DATA_HEAD_LIMIT)
    if comma < 0:
        raise MediaSourceError(
            "data URL has no comma after its media type", code="media.data_url", got=short_url(url), where=where
        )
    media_type, *parameters = url[5:comma].lower().split(";")
    if not parameters or parameters[-1].strip() != "base64":
        raise MediaSourceError("data URL is not base64", code="media.data_url", got=url[:comma], where=where)
    if media_type not in ("", "application/octet-stream", *allowed_types(kind)):
        raise MediaSourceError(
            f"data URL does not declare {'an image' if kind == 'image' else 'a video'}",
            code="media.data_url",
            got=media_type,
            allowed=", ".join(allowed_types(kind)),
            where=where,
        )
    limit = min(limits.max_data_bytes, limits.max_image_bytes if kind == "image" else limits.max_bytes)
    _check_size((len(url) - comma - 1) * 3 // 4 - 2, limit, where)
    try:
        return binascii.a2b_base64(url[comma + 1 :], strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise MediaSourceError(
            f"data URL is not strict base64 ({error})", code="media.data_url", got=url[:comma], where=where
        ) from error


def _check_size(size: int, limit: int, where: Where | None) -> None:
    if size == 0:
        raise MediaDecodeError("media is empty", code="media.empty", where=where)
    if size > limit:
        raise MediaDecodeError(
            "media is too large",
            code="media.too_large",
            got=f"{size} bytes",
            allowed=f"{limit} bytes",
            where=where,
        )


def _check_type(head: bytes, kind: MediaKind, where: Where | None) -> str:
    found = sniff(head)
    if found is None or found not in allowed_types(kind):
        raise MediaDecodeError(
            f"content is no {kind} format that is opened",
            code="media.type",
            got=found or head[:16],
            allowed=", ".join(allowed_types(kind)),
            where=where,
        )
    return found
