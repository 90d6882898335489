# SPDX-License-Identifier: Apache-2.0
"""From a raw row's messages to the request that a model server gets: media resolved, checked, in the chosen form.

Tagged frames go out as one ``input_video`` with a cached-frame manifest, as ``input_image`` parts, or as their
source video; native videos and stills go out as they are. Every reference is opened by the source policy first.
Blocking: call it off an event loop.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nemo_gym_video.alignment.media_id import frames_id
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.store import ContentStore
from nemo_gym_video.messages import (
    FrameManifest,
    MediaGroup,
    MediaKind,
    MediaMode,
    MediaPart,
    as_messages,
    group_media,
    image_part,
    is_manifest_url,
    iter_media_parts,
    media_mode,
    short_url,
    video_part,
)

TaggedFrames = Literal["manifest", "images", "source_video"]
MediaUrls = Literal["file", "data"]
Form = Literal["input_video", "manifest", "input_images", "input_image"]

_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedItem:
    """One logical image or video as it went into the request.

    ``media_id`` is ``sha256:`` over the content bytes (of a video given as frames: over its frames' ids),
    ``source`` what a person would call it, ``form`` how it was sent, ``frames`` the number of sampled frames
    where known, and ``parts`` the content parts that carry it.
    """

    kind: MediaKind
    source: str
    media_id: str
    form: Form
    tagged: bool
    frames: int | None
    parts: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """The messages to send and the items in them; ``mode`` is the row's own media mode."""

    messages: list[Any]
    items: tuple[EmittedItem, ...]
    mode: MediaMode


class Emitter:
    """Turns rows' messages into requests under one source policy. Safe to share between threads."""

    def __init__(
        self,
        sources: MediaSources,
        *,
        tagged_frames: TaggedFrames = "manifest",
        media_urls: MediaUrls = "file",
        store: ContentStore | None = None,
    ) -> None:
        """``store`` keeps frames that came as data URLs, which a manifest can only name as files."""
        self._sources = sources
        self._tagged_frames = tagged_frames
        self._media_urls = media_urls
        self._store = store

    def emit(self, conversation: str | Sequence[Any], *, where: Where | None = None) -> Emission:
        """Resolve all media of ``conversation``.

        Raises:
            RowError: a media part is malformed, or frames cannot be sent in the configured form.
            MediaSourceError: the policy refuses a reference.
            MediaDecodeError: a file is not what it is sent as.
        """
        messages = as_messages(conversation)
        groups = group_media(iter_media_parts(messages, where=where))
        items = [self._emit_group(group, where) for group in groups]
        replaced: dict[int, dict[int, tuple[dict[str, Any], ...]]] = {}
        for group, item in zip(groups, items, strict=True):
            places = replaced.setdefault(group.parts[0].message, {})
            places.update({part.part: () for part in group.parts})
            if len(item.parts) == len(group.parts):
                places.update({part.part: (sent,) for part, sent in zip(group.parts, item.parts, strict=True)})
            else:
                places[group.parts[0].part] = item.parts
        sent_messages = [_replace(message, replaced.get(index, {})) for index, message in enumerate(messages)]
        return Emission(messages=sent_messages, items=tuple(items), mode=media_mode(groups))

    def _emit_group(self, group: MediaGroup, where: Where | None) -> EmittedItem:
        if group.tagged:
            return self._emit_tagged(group, where)
        part = group.parts[0]
        place = _place(part, where)
        if is_manifest_url(part.url):
            return self._emit_manifest(part.url, place)
        blob = self._sources.open(part.url, kind=group.kind, where=place)
        return self._single(group.kind, short_url(part.url), blob)

    def _emit_tagged(self, group: MediaGroup, where: Where | None) -> EmittedItem:
        if self._tagged_frames == "source_video":
            place = _place(group.parts[0], where)
            blob = self._sources.open(group.source, kind="video", where=place)
            return self._single("video", group.source, blob, tagged=True)
        blobs = [self._sources.open(part.url, kind="image", where=_place(part, where)) for part in group.parts]
        media_id = frames_id([blob.digest for blob in blobs])
        if self._tagged_frames == "images":
            parts, form = tuple(image_part(self._url(blob)) for blob in blobs), "input_images"
        else:
            paths = tuple(
                str(self._frame_path(blob, part, where)) for blob, part in zip(blobs, group.parts, strict=True)
            )
            parts, form = (video_part(FrameManifest(frame_paths=paths).to_url()),), "manifest"
        return EmittedItem(kind="video", source=group.source, media_id=media_id, form=form, tagged=True,  # type: ignore[arg-type]
                           frames=len(blobs), parts=parts)  # fmt: skip

    def _emit_manifest(self, url: str, place: Where) -> EmittedItem:
        """A row's own manifest: each frame must pass the policy, then it goes out with real paths."""
        manifest = FrameManifest.from_url(url, where=place)
        blobs = [self._sources.open(path, kind="image", where=place) for path in manifest.frame_paths]
        paths = tuple(str(blob.path) for blob in blobs)
        sent = FrameManifest(frame_paths=paths, fps=manifest.fps, video_backend=manifest.video_backend)
        media_id = frames_id([blob.digest for blob in blobs])
        return EmittedItem(kind="video", source=short_url(url), media_id=media_id, form="manifest", tagged=False,
                           frames=len(blobs), parts=(video_part(sent.to_url()),))  # fmt: skip

    def _single(self, kind: MediaKind, source: str, blob: MediaBlob, *, tagged: bool = False) -> EmittedItem:
        url = self._url(blob)
        part, form = (video_part(url), "input_video") if kind == "video" else (image_part(url), "input_image")
        return EmittedItem(kind=kind, source=source, media_id=blob.digest, form=form, tagged=tagged,  # type: ignore[arg-type]
                           frames=1 if kind == "image" else None, parts=(part,))  # fmt: skip

    def _url(self, blob: MediaBlob) -> str:
        if blob.path is not None and self._media_urls == "file":
            return blob.path.as_uri()
        return f"data:{blob.media_type};base64,{base64.b64encode(blob.read_bytes()).decode('ascii')}"

    def _frame_path(self, blob: MediaBlob, part: MediaPart, where: Where | None) -> Path:
        if blob.path is not None:
            return blob.path
        if self._store is None:
            raise RowError(
                "tagged frame is a data URL, which a cached-frame manifest cannot name",
                allowed="files; or set the agent's media_store to a folder, or its tagged_frames to images",
                where=_place(part, where),
            )
        return self._store.put(blob.read_bytes(), suffix=_SUFFIXES.get(blob.media_type, ".bin")).path.absolute()


def _replace(message: Any, places: Mapping[int, tuple[dict[str, Any], ...]]) -> Any:
    if not places:
        return message
    key = "output" if message.get("type") == "function_call_output" else "content"
    parts: list[Any] = []
    for index, part in enumerate(message[key]):
        for sent in places.get(index, (part,)):
            keeps_detail = index in places and sent["type"] == "input_image" and "detail" in part
            parts.append({**sent, "detail": part["detail"]} if keeps_detail else sent)
    return {**message, key: parts}


def _place(part: MediaPart, where: Where | None) -> Where:
    base = where or Where()
    return Where(
        file=base.file, line=base.line, row=base.row, turn=base.turn, message=part.message, part=part.part
    )
