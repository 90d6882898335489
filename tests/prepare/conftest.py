# SPDX-License-Identifier: Apache-2.0
"""A small synthetic set in the published layouts, and the truth it was rendered from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from nemo_gym_video.prepare.synthetic.clips import SyntheticSet, default_scene, scene_footage, synthesize
from nemo_gym_video.prepare.synthetic.scene import Scene, paint

SIZE = (192, 108)
SECONDS = 3.5
SEED = 5


@dataclass(frozen=True)
class Truth:
    """One rendered scene: pixels uint8 [frames, h, w, 3], masks bool [frames, sprites, h, w]."""

    scene: Scene
    pixels: NDArray[np.uint8]
    masks: NDArray[np.bool_]


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> SyntheticSet:
    """Four scenes and two montages over rendered footage."""
    root = tmp_path_factory.mktemp("native")
    return synthesize(root, seed=SEED, scenes=4, montages=2, size=SIZE, seconds=SECONDS, real=False)


@pytest.fixture(scope="session")
def truth() -> Callable[[str], Truth]:
    """The truth of a scene of ``native`` by its video id, painted again from the seed."""
    known: dict[str, Truth] = {}

    def of(video_id: str) -> Truth:
        if video_id not in known:
            seed = [SEED, int(video_id.removeprefix("sav_")) - 1]
            scene = default_scene(seed, size=SIZE, seconds=SECONDS)
            frames = list(paint(scene, scene_footage(seed, size=SIZE, real=False)))
            known[video_id] = Truth(
                scene, np.stack([pixels for pixels, _ in frames]), np.stack([masks for _, masks in frames])
            )
        return known[video_id]

    return of


@pytest.fixture(scope="session")
def val_root(
    native: SyntheticSet, truth: Callable[[str], Truth], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same scenes in the layout of SA-V val: 24 fps JPEGs, 6 fps PNGs an object, a list of ids."""
    root = tmp_path_factory.mktemp("sav_val")
    for video_id in native.scene_ids[:2]:
        shown = truth(video_id)
        write_val_video(root, video_id, shown.pixels, shown.masks)
    (root / "sav_val.txt").write_text("\n".join(native.scene_ids[:2]) + "\n")
    return root


def write_val_video(root: Path, video_id: str, pixels: NDArray[np.uint8], masks: NDArray[np.bool_]) -> None:
    """Write one val video; PNGs of absent objects are all black, as published ones are."""
    frames = root / "JPEGImages_24fps" / video_id
    frames.mkdir(parents=True)
    for index, image in enumerate(pixels):
        Image.fromarray(image).save(frames / f"{index:05d}.jpg", quality=95)
    for number in range(masks.shape[1]):
        folder = root / "Annotations_6fps" / video_id / f"{number:03d}"
        folder.mkdir(parents=True)
        for index in range(0, len(masks), 4):
            Image.fromarray(masks[index, number]).convert("1").save(folder / f"{index:05d}.png")


def files_below(root: Path) -> dict[str, bytes]:
    """Every file below ``root`` by relative path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """``files_below`` as a fixture."""
    return files_below
