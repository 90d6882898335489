# SPDX-License-Identifier: Apache-2.0
"""``gym-video frames``: the frames that a sampling convention chooses, as PNG files and one JSON record."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nemo_gym_video.commands.shared_options import Convention, NumFrames, OutputFolder, TargetFps
from nemo_gym_video.errors import MediaDecodeError, MediaSourceError, RowError

if TYPE_CHECKING:
    from nemo_gym_video.media.video import VideoClip, VideoInfo


def frames(
    file: Annotated[Path, typer.Argument(help="Video file.")],
    output: OutputFolder,
    num_frames: NumFrames = None,
    convention: Convention = "vllm",
    target_fps: TargetFps = None,
    start: Annotated[float | None, typer.Option(help="Only frames from this time on, in seconds.")] = None,
    end: Annotated[float | None, typer.Option(help="Only frames up to this time, in seconds.")] = None,
) -> None:
    """Write the frames that a loader would choose from a video (000000.png, 000001.png, …) and one JSON record."""
    record = write_frames(
        file,
        output,
        num_frames=num_frames,
        convention=convention,
        target_fps=target_fps,
        start=start,
        end=end,
    )
    print(json.dumps(record))


def write_frames(
    file: Path,
    output: Path,
    *,
    num_frames: int | None,
    convention: str,
    target_fps: float | None = None,
    start: float | None = None,
    end: float | None = None,
) -> dict[str, Any]:
    """Sample ``file`` between ``start`` and ``end`` (stream seconds, both included) and write its frames.

    Raises:
        MediaDecodeError: no frame lies in the span, or one that was chosen cannot be decoded.
    """
    from nemo_gym_video.media.video import frames_between, open_clip  # start-up: --help needs no PyAV
    from nemo_gym_video.processors.sampling import sample_frames  # start-up: --help needs no PyAV

    for name, value in (("--start", start), ("--end", end)):
        if value is not None and not math.isfinite(value):
            raise RowError(f"{name} is no number of seconds", got=value)
    with open_clip(file) as clip:
        info = clip.info
        span = frames_between(
            info,
            info.start_time if start is None else start,
            float(info.timestamps[-1]) if end is None else end,
        )
        if not span:
            raise MediaDecodeError(
                "no frame lies between start and end",
                code="media.frame_index",
                got=(start, end),
                allowed=f"{info.start_time:.3f} to {info.timestamps[-1]:.3f} s",
            )
        sample = sample_frames(
            convention, total=len(span), fps=info.fps, num_frames=num_frames, target_fps=target_fps
        )
        indices = [span[index] for index in sample.indices]
        _make_folder(output, len(indices))
        _write(clip, indices, output)
    asked = {
        "convention": convention,
        "num_frames": num_frames,
        "target_fps": target_fps,
        "start": start,
        "end": end,
    }
    return _record(file, info, indices, asked)


def _record(file: Path, info: VideoInfo, indices: list[int], asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked of a clip and what was delivered; times in seconds of the stream."""
    return {
        "file": str(file),
        "size": list(info.size),
        "fps": info.fps,
        "total": info.total,
        "decodable": info.decodable,
        "indices": indices,
        "timestamps": [float(info.timestamps[index]) for index in indices],
        "start_time": info.start_time,
        "duration": info.duration_s,
        "rotation": info.rotation,
        "mirrored": info.mirrored,
        "variable_rate": info.variable_rate,
        "sample_aspect_ratio": list(info.sample_aspect_ratio),
        "container": info.container,
        "codec": info.codec,
        "decoder": info.decoder,
        "asked": asked,
        "delivered": len(indices),
    }


def _write(clip: VideoClip, indices: list[int], output: Path) -> None:
    """Write the frames; one that stands at several places is decoded once."""
    from nemo_gym_video.media.image import encode_png  # start-up: --help needs no PyAV
    from nemo_gym_video.media.store import write_whole  # start-up: --help needs no PyAV

    places: dict[int, list[int]] = {}
    for place, index in enumerate(indices):
        places.setdefault(index, []).append(place)
    for frame in clip.iter_frames(indices):
        png = encode_png(frame.pixels)
        for place in places[frame.index]:
            write_whole(output / f"{place:06d}.png", png)


def _make_folder(output: Path, count: int) -> None:
    """Make the folder; frames that an earlier, longer run left in it would pass for this run's."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MediaSourceError(
            f"output folder cannot be made ({error.strerror})", code="prepare.output", got=str(output)
        ) from error
    names = {f"{place:06d}.png" for place in range(count)}
    left = sorted(
        path.name for path in output.glob("[0-9][0-9][0-9][0-9][0-9][0-9].png") if path.name not in names
    )
    if left:
        raise MediaSourceError(
            "output folder holds frames of another run",
            code="prepare.output",
            got=left[0],
            allowed="an empty folder",
        )
