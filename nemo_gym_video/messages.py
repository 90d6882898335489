# SPDX-License-Identifier: Apache-2.0
"""Reads and writes OpenAI Responses messages: typed media parts, tagged frames, the cached-frame manifest URL.

Only typed parts are media (``input_image``, ``input_video``). A string is text, whatever it looks like. Works on
plain JSON dicts, because nemo-gym's typed parts drop the keys that tag a frame.
Nothing here opens media or copies a data URL.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nemo_gym_video.errors import RowError, Where

MediaKind = Literal["image", "video"]
MediaMode = Literal["native_video", "tagged_frames", "images", "none"]

CACHED_FRAMES_PREFIX = "data:video/x-nemo-rl-cached-frames;base64,"
CACHED_FRAMES_MAGIC = b"NEMO_RL_CACHED_VIDEO_FRAMES_V1\n"

_MANIFEST_LIMIT = 4 << 20


@dataclass(frozen=True, slots=True)
class MediaPart:
    """One typed media part of a message and its place.

    ``message`` and ``part`` are indices into the conversation and the message's content list. ``video_source``
    and ``frame_index`` are set for a tagged frame (``_is_video_frame: true``) only.
    """

    kind: MediaKind
    url: str
    message: int
    part: int
    role: str
    video_source: str | None = None
    frame_index: int | None = None

    @property
    def tagged(self) -> bool:
        """Whether the part is one frame of a video."""
        return self.video_source is not None


@dataclass(frozen=True, slots=True)
class MediaGroup:
    """One logical image or video: a native part, a still, or a run of tagged frames of one source."""

    kind: MediaKind
    parts: tuple[MediaPart, ...]

    @property
    def source(self) -> str:
        """The reference a person would name: the tagged frames' source, else the URL as given."""
        first = self.parts[0]
        return first.url if first.video_source is None else first.video_source

    @property
    def tagged(self) -> bool:
        """Whether the item is a run of tagged frames."""
        return self.parts[0].tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameManifest:
    """Pre-sampled frames that travel as one ``input_video`` (NeMo RL's cached-frame form).

    ``frame_paths`` are absolute paths of images of one size; ``fps`` frames a second of the sampled clip,
    ``duration`` in seconds, ``frames_indices`` 0..n-1.

    >>> from nemo_gym_video import FrameManifest
    >>> url = FrameManifest(frame_paths=("/media/0.png", "/media/1.png"), fps=2.0).to_url()
    >>> FrameManifest.from_url(url).frame_paths
    ('/media/0.png', '/media/1.png')
    """

    frame_paths: tuple[str, ...]
    fps: float = 1.0
    video_backend: str = "nemo_gym_video"

    def to_url(self) -> str:
        """Render the data URL: base64 of the magic line and one JSON object."""
        count = len(self.frame_paths)
        body = {
            "frame_paths": list(self.frame_paths),
            "metadata": {
                "fps": self.fps,
                "duration": count / self.fps,
                "total_num_frames": count,
                "frames_indices": list(range(count)),
                "video_backend": self.video_backend,
                "do_sample_frames": False,
            },
        }
        payload = CACHED_FRAMES_MAGIC + json.dumps(body, separators=(",", ":")).encode()
        return CACHED_FRAMES_PREFIX + base64.b64encode(payload).decode("ascii")

    @classmethod
    def from_url(cls, url: str, *, where: Where | None = None) -> FrameManifest:
        """Read the manifest back; a ``RowError`` names what is wrong with it. Opens no frame."""
        if not url.startswith(CACHED_FRAMES_PREFIX):
            raise RowError("not a cached-frame manifest URL", got=short_url(url), where=where)
        if len(url) > _MANIFEST_LIMIT:
            raise RowError("cached-frame manifest is too long", got=len(url), allowed="4 MiB", where=where)
        try:
            payload = base64.b64decode(url[len(CACHED_FRAMES_PREFIX) :], validate=True)
            if not payload.startswith(CACHED_FRAMES_MAGIC):
                raise RowError("cached-frame manifest lacks its magic line", where=where)
            body = json.loads(payload[len(CACHED_FRAMES_MAGIC) :])
        except (binascii.Error, ValueError, RecursionError) as error:
            raise RowError(f"cached-frame manifest is unreadable ({error})", where=where) from error
        return cls._from_body(body, where)

    @classmethod
    def _from_body(cls, body: object, where: Where | None) -> FrameManifest:
        paths = body.get("frame_paths") if isinstance(body, dict) else None
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise RowError("cached-frame manifest has no list of frame paths", got=paths, where=where)
        if not isinstance(metadata, dict):
            raise RowError("cached-frame manifest has no metadata", got=metadata, where=where)
        fps = metadata.get("fps", 1.0)
        if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e6:
            raise RowError("cached-frame manifest fps is no positive number", got=fps, where=where)
        count = metadata.get("total_num_frames", len(paths))
        if count != len(paths):
            raise RowError("cached-frame manifest disagrees with itself on its frame count", got=count,
                           allowed=str(len(paths)), where=where)  # fmt: skip
        backend = metadata.get("video_backend", "")
        return cls(frame_paths=tuple(paths), fps=float(fps), video_backend=str(backend))


def is_manifest_url(url: str) -> bool:
    """Whether ``url`` is a cached-frame manifest."""
    return url.startswith(CACHED_FRAMES_PREFIX)


def short_url(url: str) -> str:
    """``url`` for a person or a log: a data URL is cut after its media type, anything else is unchanged."""
    if url[:5].lower() != "data:":
        return url
    head = url[:200]
    cut = min((index for index in (head.find(";"), head.find(",")) if index >= 0), default=len(head))
    return head[:cut]


def media_url(part: Mapping[str, Any], *, where: Where | None = None) -> str:
    """The URL of an ``input_image`` or ``input_video`` part, in any of the forms that Gym accepts.

    Raises:
        RowError: the part names no URL, two, a file id, or something that is no string.
    """
    names = ("image_url", "image") if part.get("type") == "input_image" else ("video_url", "video")
    given = [part[name] for name in names if part.get(name) is not None]
    if len(given) != 1:
        raise RowError(f"{part.get('type')} part needs exactly one of {' and '.join(names)}", got=sorted(part),
                       where=where)  # fmt: skip
    value = given[0]
    if isinstance(value, Mapping):
        value = value.get("url")
    if not isinstance(value, str) or not value:
        raise RowError(f"{part.get('type')} part holds no URL string", got=value, where=where)
    return value


def text_part(text: str) -> dict[str, Any]:
    """An ``input_text`` part.

    >>> from nemo_gym_video import text_part
    >>> text_part("Which colour?")
    {'type': 'input_text', 'text': 'Which colour?'}
    """
    return {"type": "input_text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    """An ``input_image`` part for one still.

    >>> from nemo_gym_video import image_part
    >>> image_part("media/1.png")
    {'type': 'input_image', 'image_url': 'media/1.png', 'detail': 'auto'}
    """
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def video_part(url: str) -> dict[str, Any]:
    """An ``input_video`` part for a clip or a cached-frame manifest.

    >>> from nemo_gym_video import video_part
    >>> video_part("media/cat.mp4")
    {'type': 'input_video', 'video_url': 'media/cat.mp4'}
    """
    return {"type": "input_video", "video_url": url}


def as_messages(conversation: str | Sequence[Any]) -> list[Any]:
    """A request's ``input`` as a list of items; a bare string is one user message."""
    if isinstance(conversation, str):
        return [{"role": "user", "content": conversation}]
    return list(conversation)


def content_parts(item: object) -> tuple[str, Sequence[Any]]:
    """Role and list of parts of a message or of a tool output; no list gives an empty one.

    A function call's output counts as role ``tool``, and only when it is a list: a string is text.
    """
    if not isinstance(item, Mapping):
        return "", ()
    if item.get("type") == "function_call_output":
        role, content = "tool", item.get("output")
    else:
        role, content = str(item.get("role", "")), item.get("content")
    return role, content if isinstance(content, list) else ()


def iter_media_parts(conversation: str | Sequence[Any], *, where: Where | None = None) -> Iterator[MediaPart]:
    """Every typed media part in prompt order. Raises ``RowError`` for a malformed one.

    >>> from nemo_gym_video import image_part, iter_media_parts, text_part
    >>> message = {"role": "user", "content": [text_part("Which colour?"), image_part("media/1.png")]}
    >>> [(part.kind, part.url, part.part) for part in iter_media_parts([message])]
    [('image', 'media/1.png', 1)]
    """
    for message_index, item in enumerate(as_messages(conversation)):
        role, parts = content_parts(item)
        for part_index, part in enumerate(parts):
            if not isinstance(part, Mapping) or part.get("type") not in ("input_image", "input_video"):
                continue
            place = _at(where, message_index, part_index)
            yield _media_part(part, role, message_index, part_index, place)


def _media_part(
    part: Mapping[str, Any], role: str, message_index: int, part_index: int, place: Where
) -> MediaPart:
    url = media_url(part, where=place)
    if part["type"] == "input_video":
        return MediaPart("video", url, message_index, part_index, role)
    flag = part.get("_is_video_frame", False)
    if not isinstance(flag, bool):
        raise RowError("_is_video_frame is no boolean", got=flag, allowed="true or false", where=place)
    if not flag:
        return MediaPart("image", url, message_index, part_index, role)
    source = part.get("_video_source")
    if not isinstance(source, str) or not source:
        raise RowError("tagged frame names no _video_source", got=source, allowed="a string", where=place)
    index = part.get("_video_frame_index")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise RowError("_video_frame_index is no integer", got=index, where=place)
    return MediaPart("image", url, message_index, part_index, role, video_source=source, frame_index=index)


def group_media(parts: Sequence[MediaPart] | Iterator[MediaPart]) -> tuple[MediaGroup, ...]:
    """Join neighbouring tagged frames of one source in one message to one video; everything else stands alone.

    Frames are neighbours when no other *media* part stands between them; text between them (labels) is fine.

    >>> from nemo_gym_video import group_media, image_part, iter_media_parts
    >>> tags = {"_is_video_frame": True, "_video_source": "cat.mp4"}
    >>> frames = [image_part(f"{number}.png") | tags for number in range(3)]
    >>> [group.kind for group in group_media(iter_media_parts([{"role": "user", "content": frames}]))]
    ['video']
    """
    groups: list[list[MediaPart]] = []
    for part in parts:
        last = groups[-1][-1] if groups else None
        joins = (
            last is not None
            and part.tagged
            and last.video_source == part.video_source
            and last.message == part.message
        )
        if joins:
            groups[-1].append(part)
        else:
            groups.append([part])
    return tuple(MediaGroup("video" if group[0].tagged else group[0].kind, tuple(group)) for group in groups)


def media_mode(groups: Sequence[MediaGroup]) -> MediaMode:
    """The media mode that ``groups`` amount to; a mixture takes its most video-like member."""
    if any(group.tagged for group in groups):
        return "tagged_frames"
    if any(group.kind == "video" for group in groups):
        return "native_video"
    return "images" if groups else "none"


def _at(where: Where | None, message: int, part: int) -> Where:
    base = where or Where()
    return Where(file=base.file, line=base.line, row=base.row, turn=base.turn, message=message, part=part)
