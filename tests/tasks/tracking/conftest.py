# SPDX-License-Identifier: Apache-2.0
"""Rows and answers that the tracking tests share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

SIZE = 100  # pixels of a side of every mask here: 10 grid units a pixel


def square(low: int, high: int) -> dict[str, Any]:
    """A mask of pixels ``low`` to ``high`` (exclusive) in both directions, runs written by hand."""
    side = high - low
    runs = [low * SIZE + low]
    for _ in range(side):
        runs += [side, SIZE - side]
    runs[-1] = SIZE * SIZE - sum(runs[:-1])
    return {"size": [SIZE, SIZE], "counts": runs}


def entry(frame: int, xy: Any = None, *, key: str = "point", who: Any = 1, **more: Any) -> dict[str, Any]:
    """One entry: at ``xy``, or absent without one."""
    place = {"visible": False} if xy is None else {"xy": xy, "visible": True}
    return {key: who, "frame": frame, **place, **more}


def wrap(tracks: Any) -> str:
    """The envelope around a list of entries."""
    return f"<answer>{json.dumps({'tracks': tracks})}</answer>"


@pytest.fixture
def pt_row() -> dict[str, Any]:
    """The specification's row: one point, frame 1 visible with mask 300..700, frame 2 absent."""
    return {
        "task": "pt",
        "reference_frame": 0,
        "coordinate_space": "grid1000",
        "objects": [
            {
                "id": 1,
                "reference_frame": 0,
                "reference_xy": [500, 500],
                "targets": [
                    {"frame": 1, "visible": True, "xy": [500, 500], "mask": square(30, 70)},
                    {"frame": 2, "visible": False},
                ],
            }
        ],
    }


@pytest.fixture
def box_row() -> dict[str, Any]:
    """One box at 100..300 by 200..600 on frame 1, absent on frame 2."""
    return {
        "task": "box",
        "objects": [
            {
                "id": 1,
                "reference_bbox": [100, 200, 300, 600],
                "targets": [
                    {"frame": 1, "visible": True, "bbox": [100, 200, 300, 600]},
                    {"frame": 2, "visible": False},
                ],
            }
        ],
    }


@pytest.fixture
def ref_row() -> dict[str, Any]:
    """Two objects on four frames: 1 at the upper left and 2 at the lower right, both visible throughout."""

    def item(identity: int, mask: dict[str, Any]) -> dict[str, Any]:
        targets = [{"frame": frame, "visible": True, "mask": mask} for frame in range(1, 5)]
        return {"id": identity, "targets": targets}

    return {"task": "ref", "objects": [item(1, square(0, 40)), item(2, square(60, 100))]}


Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make_entry() -> Make:
    """``entry`` for tests that cannot import from here."""
    return entry


@pytest.fixture
def make_answer() -> Callable[[Any], str]:
    """``wrap`` for tests that cannot import from here."""
    return wrap


@pytest.fixture
def make_square() -> Callable[[int, int], dict[str, Any]]:
    """``square`` for tests that cannot import from here."""
    return square
