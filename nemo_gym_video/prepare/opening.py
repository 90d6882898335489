# SPDX-License-Identifier: Apache-2.0
"""Opens the media that inputs name and turns the media layer's refusals into the job's named reasons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, NemoGymVideoError, Where
from nemo_gym_video.media.sources import MediaBlob, MediaSources
from nemo_gym_video.media.video import open_clip
from nemo_gym_video.prepare.outcome import Refusal

# The media layer's codes that a preparation report has a name for. Every other code of a source that is refused is
# "refused", and of content that cannot be used "unreadable".
_REASONS = {
    "media.missing": "missing",
    "media.no_video_stream": "no_video_stream",
    "media.type": "no_video_stream",
    "media.no_frames": "no_frames",
    "media.too_large": "too_large",
}


def reason_of(error: NemoGymVideoError) -> str:
    """The named reason for a media error, by its code."""
    return _REASONS.get(error.code) or ("refused" if isinstance(error, MediaSourceError) else "unreadable")


def refusal_of(error: NemoGymVideoError, where: Where | None = None) -> Refusal:
    """A media error as a refusal with its named reason."""
    return Refusal(
        reason_of(error), error.problem, got=error.got, allowed=error.allowed, where=where or _where(error)
    )


def _where(error: NemoGymVideoError) -> Where | None:
    return error.where if isinstance(error.where, Where) else None


@contextmanager
def opened_clip(sources: MediaSources, url: str, *, where: Where) -> Iterator[tuple[MediaBlob, Any]]:
    """The blob and the open clip of a video reference; media errors inside the block become refusals."""
    try:
        blob = sources.open(url, kind="video", where=where)
        with open_clip(blob, where=where) as clip:
            yield blob, clip
    except (MediaSourceError, MediaDecodeError) as error:
        raise refusal_of(error, where) from error
