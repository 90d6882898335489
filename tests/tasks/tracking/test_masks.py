# SPDX-License-Identifier: Apache-2.0
"""Run-length masks against pycocotools, known values, and everything that must be refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco

from nemo_gym_video.errors import RowError
from nemo_gym_video.tasks.tracking import RleMask, encode
from nemo_gym_video.tasks.tracking.masks import compress_counts

# Height 2, width 3: column-major indices 0 2 4 / 1 3 5. Inside are (x, y) = (0, 1), (1, 0), (2, 1).


@pytest.mark.parametrize("counts", [[1, 2, 2, 1], "122O", b"122O", (1, 2, 2, 1)])
def test_counts_come_as_string_bytes_and_list(counts: Any) -> None:
    mask = RleMask.from_coco([2, 3], counts)
    assert (mask.height, mask.width, mask.area) == (2, 3, 3)
    inside = {
        (x, y) for x in range(3) for y in range(2) if mask.contains((x + 0.5) / 3 * 1000, (y + 0.5) / 2 * 1000)
    }
    assert inside == {(0, 1), (1, 0), (2, 1)}


def test_the_string_of_known_runs() -> None:
    # 5 bits a character from '0': 32 is low bits 0 with more to come ('P'), then 1 ('1'); deltas from the fourth.
    assert compress_counts([1, 2, 2, 1]) == "122O"
    assert compress_counts([32, 1]) == "P11"
    assert RleMask.from_coco([33, 1], "P11").ends == (32, 33)


def test_size_is_height_then_width() -> None:
    wide = np.zeros((1, 4), dtype=np.uint8)
    wide[0, 3] = 1
    mask = encode(wide)
    assert mask.to_coco()["size"] == [1, 4]
    assert mask.contains(1000, 0)
    assert not mask.contains(0, 1000)


SHAPES = [(1, 1), (1, 7), (7, 1), (2, 3), (13, 17), (64, 64), (1, 3840), (2160, 1), (480, 848), (1080, 1920)]


def _random_mask(rng: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    kind = rng.integers(5)
    if kind < 2:
        return np.full(shape, kind, dtype=np.uint8)
    if kind == 2:
        return (rng.random(shape) < rng.random()).astype(np.uint8)
    ys, xs = np.mgrid[: shape[0], : shape[1]]
    y, x = rng.random(2) * shape
    outer, inner = sorted(rng.random(2) * max(shape))[::-1]
    distance = (ys - y) ** 2 + (xs - x) ** 2
    ring = distance < outer**2
    pixels: npt.NDArray[np.uint8] = (ring & (distance > inner**2) if kind == 4 else ring).astype(np.uint8)
    return pixels


def _check_against_coco(rng: np.random.Generator, shape: tuple[int, int], points: int) -> None:
    pixels = _random_mask(rng, shape)
    theirs = coco.encode(np.asfortranarray(pixels))
    decoded = coco.decode(theirs)
    counts = theirs["counts"]
    mask = RleMask.from_coco(list(shape), counts if rng.integers(2) else counts.decode())
    assert mask == encode(pixels)
    assert mask.to_coco()["counts"] == counts.decode()
    assert mask.area == coco.area(theirs)
    left, top, width, height = coco.toBbox(theirs)
    assert mask.bbox == ((left, top, left + width, top + height) if mask.area else None)
    # Whole and fractional grid points, the ends included.
    xs = np.concatenate((rng.integers(0, 1001, points // 2), rng.random(points - points // 2) * 1000))
    ys = rng.permutation(xs)
    columns = np.clip(np.floor(xs / 1000 * shape[1]).astype(int), 0, shape[1] - 1)
    rows = np.clip(np.floor(ys / 1000 * shape[0]).astype(int), 0, shape[0] - 1)
    expected = decoded[rows, columns] == 1
    assert np.array_equal(mask.contains_many(xs, ys), expected)
    assert [mask.contains(float(x), float(y)) for x, y in zip(xs, ys, strict=True)] == expected.tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_membership_is_what_pycocotools_decodes(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape)
    for _ in range(3 if shape[0] * shape[1] > 10_000 else 20):
        _check_against_coco(rng, shape, 50)


@pytest.mark.slow
def test_membership_at_a_hundred_thousand_points() -> None:
    rng = np.random.default_rng(1)
    shapes = [*SHAPES, (2160, 3840), (720, 1280), (3, 2000), (1999, 5)]
    for number in range(1000):
        height, width = shapes[number % len(shapes)] if number % 2 else rng.integers(1, 300, 2).tolist()
        _check_against_coco(rng, (height, width), 100)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=30))
def test_any_runs_survive_the_string(runs: list[int]) -> None:
    total = sum(runs)
    if not 1 <= total <= 1 << 16:
        return
    theirs = coco.frPyObjects({"size": [total, 1], "counts": runs}, total, 1)
    assert theirs["counts"].decode() == compress_counts(runs)
    assert RleMask.from_coco([total, 1], theirs["counts"]) == RleMask.from_coco([total, 1], runs)


REFUSED = [
    ([2, 3], [1, 2, 2], "do not add up"),
    ([2, 3], [1, 2, 2, 2], "do not add up"),
    ([2, 3], [], "do not add up"),
    ([2, 3], "", "do not add up"),
    ([2, 3], "122", "do not add up"),
    ([3, 3], "1221", "do not add up"),
    ([2, 3], [7, -1], "no length"),
    ([2, 3], [3, -3, 6], "no length"),
    ([2, 3], [1.0, 5], "no length"),
    ([2, 3], [True, 5], "no length"),
    ([2, 3], ["1", 5], "no length"),
    ([2, 3], [None], "no length"),
    ([2, 3], [10**5000], "no length"),
    ([2, 3], "12O", "no length"),
    ([2, 3], "P", "no compressed"),
    ([2, 3], "1 2", "no compressed"),
    ([2, 3], "1\x002", "no compressed"),
    ([2, 3], "p", "no compressed"),
    ([2, 3], b"\xff1", "ASCII"),
    ([2, 3], "1é", "ASCII"),
    ([2, 3], "\ud800", "ASCII"),
    ([2, 3], "oooooooooooooooo0", "longer than any mask"),
    ([2, 3], "ooooooo0", "longer than the mask"),
    ([2, 3], "o" * 100_000 + "0", "longer than any mask"),
    ([2, 3], None, "no known form"),
    ([2, 3], {"a": 1}, "no known form"),
    ([2, 3], 6, "no known form"),
    ([0, 3], [], "pixel counts"),
    ([-2, -3], [6], "pixel counts"),
    ([2.0, 3], [6], "pixel counts"),
    ([True, 6], [6], "pixel counts"),
    ([1 << 20, 1 << 20], [1 << 40], "pixel counts"),
    ([6], [6], r"no \[h, w\]"),
    ([1, 2, 3], [6], r"no \[h, w\]"),
    ("23", [6], r"no \[h, w\]"),
    (None, [6], r"no \[h, w\]"),
]


@pytest.mark.parametrize(("size", "counts", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_malformed_mask_is_refused_by_name(size: Any, counts: Any, problem: str) -> None:
    with pytest.raises(RowError, match=problem):
        RleMask.from_coco(size, counts)


@settings(max_examples=300, deadline=None)
@given(
    size=st.tuples(st.integers(-1, 40), st.integers(-1, 40)),
    counts=st.text(st.characters(min_codepoint=40, max_codepoint=115), max_size=30)
    | st.binary(max_size=20)
    | st.lists(st.integers(-5, 400), max_size=10),
)
def test_any_counts_give_a_mask_of_their_size_or_a_row_error(size: tuple[int, int], counts: Any) -> None:
    try:
        mask = RleMask.from_coco(list(size), counts)
    except RowError:
        return
    assert mask.ends[-1] == size[0] * size[1]
    assert list(mask.ends) == sorted(mask.ends)
    assert 0 <= mask.area <= mask.ends[-1]


def test_only_a_plane_of_pixels_can_be_encoded() -> None:
    with pytest.raises(RowError, match=r"no \[h, w\] array"):
        encode(np.zeros((2, 2, 1), dtype=np.uint8))
    with pytest.raises(RowError, match=r"no \[h, w\] array"):
        encode(np.zeros((0, 2), dtype=np.uint8))
