# SPDX-License-Identifier: Apache-2.0
"""Writes H.264 clips with fixed settings, so that the same frames give the same bytes for one library version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.prepare.whole_files import written_beside


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipForm:
    """What is odd about a clip's file while its frames stay the same.

    ``rotation`` degrees clockwise that a player turns the stored pictures by; ``start_s`` the first frame's time;
    every frame lasts ``1 / fps`` seconds, or with ``uneven`` in turn half and one and a half of that.
    """

    rotation: int = 0
    start_s: float = 0.0
    uneven: bool = False


def write_clip(
    path: Path, frames: Iterable[NDArray[np.uint8]], *, fps: int, qp: int = 20, form: ClipForm | None = None
) -> int:
    """Encode RGB ``frames`` (uint8 [h, w, 3], even sizes) at ``fps`` to an mp4 and return how many there were.

    One thread, a constant quantiser ``qp`` and no look-ahead make the file a function of the frames and of the
    codec's version (with rate control, x264 gave different bytes from run to run). A key frame stands at least
    every second. ``frames`` are as displayed, whatever the ``form``.
    """
    count, form = 0, form or ClipForm()
    # Half frames as ticks, so that uneven times are whole.
    base = Fraction(1, 2 * fps)
    with written_beside(path) as beside, av.open(str(beside), "w", format="mp4") as container:
        container.flags |= av.container.Flags.bitexact.value
        stream = container.add_stream("libx264", rate=fps)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        settings = "threads=1:sync-lookahead=0:rc-lookahead=0:mbtree=0"
        stream.options = {"qp": str(qp), "preset": "faster", "g": str(fps), "x264-params": settings}
        stream.codec_context.time_base = base
        if form.rotation:
            stream.set_display_rotation(-form.rotation)
        first = round(form.start_s * 2 * fps)
        for displayed in frames:
            pixels = np.rot90(displayed, form.rotation // 90)
            if count == 0:
                stream.height, stream.width = pixels.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = first + 2 * count - (form.uneven and count % 2), base
            container.mux(stream.encode(frame))
            count += 1
        container.mux(stream.encode())
    return count
