# SPDX-License-Identifier: Apache-2.0
"""The tile grid of closest aspect ratio, which InternVL and the first Nemotron VL models cut an image into.

Derived from the behaviour of vLLM 0.25.1 (Nemotron) and transformers 5.24 (InternVL); equal where both apply.
"""

from __future__ import annotations

from functools import lru_cache

from nemo_gym_video.processors.families.base import Grid


@lru_cache(maxsize=64)
def _arrangements(least: int, most: int) -> tuple[tuple[int, int], ...]:
    """Every (columns, rows) of ``least`` to ``most`` tiles, fewest tiles first."""
    pairs = [
        (columns, rows)
        for columns in range(1, most + 1)
        for rows in range(1, most // columns + 1)
        if columns * rows >= least
    ]
    return tuple(sorted(pairs, key=lambda pair: pair[0] * pair[1]))


def tile_grid(width: int, height: int, *, tile_size: tuple[int, int], least: int, most: int) -> Grid:
    """Rows and columns of tiles for an image; ``tile_size`` is (width, height) in pixels.

    The arrangement nearest in aspect ratio wins. Of equally near ones, a later one (of more tiles) wins when the
    image has more than half of its pixels.
    """
    aspect, pixels = width / height, width * height
    best, best_distance = (1, 1), float("inf")
    for columns, rows in _arrangements(least, most):
        distance = abs(aspect - columns / rows)
        covers = pixels > 0.5 * tile_size[0] * tile_size[1] * columns * rows
        if distance < best_distance or (distance == best_distance and covers):
            best, best_distance = (columns, rows), distance
    return best[1], best[0]
