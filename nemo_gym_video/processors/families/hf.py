# SPDX-License-Identifier: Apache-2.0
"""Any ``transformers`` image processor in a local folder, asked directly (extra ``hf``). Images only.

The processor runs on a blank picture of the size in question, so a count costs what processing costs. Nothing is
fetched and no code from the folder is run.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym_video.errors import ProcessorSettingsError, RowError
from nemo_gym_video.processors.families.base import MediaTokens, ProcessorSettings, setting
from nemo_gym_video.processors.regions import CountRequest, ItemCount, MediaSize, Region

_MOST_PIXELS = 100_000_000
# Pictures, tiles, channels, height, width.
_TILED_DIMENSIONS = 5


@dataclass(frozen=True, slots=True)
class HfSettings(ProcessorSettings):
    """``path`` is the folder with ``preprocessor_config.json``.

    ``image_seq_length`` is the tokens of a tile, needed for processors that only say how many tiles they cut
    (InternVL, Gemma 3, Idefics 3, SmolVLM).
    """

    family: ClassVar[str] = "hf"
    tokens: ClassVar[MediaTokens] = MediaTokens(image="<image>", video="<video>")
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"hf": {}}
    # Which wrappers stand around an image is the template's business, and unknown here.
    adjacent_regions_can_fuse: ClassVar[bool] = True

    path: str = setting("", kind=str, flat=("path",))
    image_seq_length: int | None = setting(
        None, kind=int, optional=True, flat=("image_seq_length",), low=1, high=65536
    )

    def check(self) -> None:
        """The folder must hold an image processor's settings."""
        if not self.path:
            raise ProcessorSettingsError(
                "family 'hf' needs a folder", allowed="setting 'path', or a folder's name"
            )
        if not (Path(self.path) / "preprocessor_config.json").is_file():
            raise ProcessorSettingsError(
                "folder holds no preprocessor_config.json", code="processor.checkpoint", got=self.path
            )

    @property
    def fingerprint(self) -> str:
        """Hash of the processor's own settings and transformers' version; the folder's name is no part."""
        body = {
            "family": self.family,
            "rule_version": self.rule_version,
            "image_seq_length": self.image_seq_length,
        }
        content = (Path(self.path) / "preprocessor_config.json").read_bytes()
        versions = _transformers_version() + json.dumps(body, sort_keys=True)
        return "sha256:" + hashlib.sha256(versions.encode() + b"\n" + content).hexdigest()

    def count_item(self, item: MediaSize, request: CountRequest) -> ItemCount:
        """What the processor makes of a blank image of that size."""
        if item.kind == "video":
            raise RowError("family 'hf' counts images only", got="video", allowed="image")
        if item.width * item.height > _MOST_PIXELS:
            raise RowError(
                "image is too large to be processed for its count",
                got=[item.width, item.height],
                allowed=f"{_MOST_PIXELS} pixels",
            )
        region = _ask(self.path, self.fingerprint, item.width, item.height, self.image_seq_length)
        return ItemCount(kind="image", regions=(region,))

    def engine_arguments(self) -> dict[str, object]:
        """The engine reads the same folder."""
        return {"model": self.path}


def _transformers_version() -> str:
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError as error:
        raise ProcessorSettingsError(
            "family 'hf' needs transformers: pip install 'nemo-gym-video[hf]'", code="processor.extra"
        ) from error


@lru_cache(maxsize=16)
def _processor(path: str, fingerprint: str) -> Any:
    """The folder's image processor; ``fingerprint`` tells a changed folder from the one in the cache."""
    from transformers import AutoImageProcessor  # extra: hf

    try:
        return AutoImageProcessor.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise ProcessorSettingsError(
            f"transformers cannot load the image processor ({error})", code="processor.checkpoint", got=path
        ) from error


@lru_cache(maxsize=4096)
def _ask(path: str, fingerprint: str, width: int, height: int, tile_tokens: int | None) -> Region:
    import numpy as np  # start-up: only this family needs it

    processor = _processor(path, fingerprint)
    blank = np.zeros((height, width, 3), dtype=np.uint8)
    try:
        answer = processor(images=[blank], return_tensors="np", input_data_format="channels_last")
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise RowError(f"the processor refuses the image ({error})", got=[width, height]) from error
    region = _region(processor, answer, tile_tokens)
    if region is None:
        raise ProcessorSettingsError(
            f"{type(processor).__name__} reports no token count",
            got=sorted(answer),
            allowed="grids, soft tokens, or, with setting 'image_seq_length', tiles",
        )
    return region


def _region(processor: Any, answer: Mapping[str, Any], tile_tokens: int | None) -> Region | None:
    """The runs that the answer tells, or ``None`` when it tells none."""
    if "image_grid_thw" in answer:
        _, rows, columns = (int(side) for side in answer["image_grid_thw"][0])
        patch = int(processor.patch_size)
        length = rows * columns // int(processor.merge_size) ** 2
        return Region(run_lengths=(length,), grid=(rows, columns), processed_size=(columns * patch, rows * patch))
    if "num_soft_tokens_per_image" in answer:
        length = int(answer["num_soft_tokens_per_image"][0])
        return Region(run_lengths=(length,), grid=None, processed_size=None)
    if tile_tokens is None:
        return None
    if "num_patches" in answer:
        # InternVL: all tiles of an image are one run.
        return Region(run_lengths=(int(answer["num_patches"][0]) * tile_tokens,), grid=None, processed_size=None)
    tiles = 0
    if "num_crops" in answer:
        # Gemma 3: the image, then each of its crops.
        tiles = 1 + int(answer["num_crops"][0])
    elif "pixel_attention_mask" in answer and answer["pixel_values"].ndim == _TILED_DIMENSIONS:
        # Idefics 3 and SmolVLM: every tile, then the whole image.
        tiles = int(answer["pixel_values"].shape[1])
    return Region(run_lengths=(tile_tokens,) * tiles, grid=None, processed_size=None) if tiles else None
