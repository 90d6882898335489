# SPDX-License-Identifier: Apache-2.0
"""Writes H.264 clips with fixed settings, so that the same frames give the same bytes for one library version."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nemo_gym_video.prepare.files import written_beside


def write_clip(path: Path, frames: Iterable[NDArray[np.uint8]], *, fps: int, qp: int = 20) -> int:
    """Encode RGB ``frames`` (uint8 [h, w, 3], even sizes) at ``fps`` to an mp4 and return how many there were.

    One thread, a constant quantiser ``qp`` and no look-ahead make the file a function of the frames and of the
    codec's version (with rate control, x264 gave different bytes from run to run). A key frame stands at least
    every second.
    """
    import av

    count = 0
    with written_beside(path) as beside, av.open(str(beside), "w", format="mp4") as container:
        container.flags |= av.container.Flags.bitexact.value
        stream = container.add_stream("libx264", rate=fps)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        settings = "threads=1:sync-lookahead=0:rc-lookahead=0:mbtree=0"
        stream.options = {"qp": str(qp), "preset": "faster", "g": str(fps), "x264-params": settings}
        stream.time_base = Fraction(1, fps)
        for pixels in frames:
            if count == 0:
                stream.height, stream.width = pixels.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = count, Fraction(1, fps)
            container.mux(stream.encode(frame))
            count += 1
        container.mux(stream.encode())
    return count
