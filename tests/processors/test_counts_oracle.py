# SPDX-License-Identifier: Apache-2.0
"""10,000 random requests a family: the rules' invariants, and agreement with transformers' own code.

Where transformers' processor needs torch to be imported, the function that decides the size is taken out of its
installed source and run alone.
"""

import ast
import importlib.util
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym_video.errors import RowError
from nemo_gym_video.processors.counts import count_request, grid_for_count
from nemo_gym_video.processors.families.nemotron_omni import NemotronOmniSettings
from nemo_gym_video.processors.families.qwen_vl import QwenSettings
from nemo_gym_video.processors.presets import load_settings
from nemo_gym_video.processors.regions import CountRequest, MediaSize, Region, RequestCount

pytest.importorskip("transformers")
ROUNDS = 10_000


def sizes(seed: str, rounds: int = ROUNDS, *, longest: int = 9000) -> Iterator[tuple[int, int]]:
    """Random sizes, even on a logarithmic scale, with a share of multiples of the usual patch sizes."""
    rng = random.Random(seed)
    for _ in range(rounds):
        width, height = (int(math.exp(rng.uniform(0, math.log(longest)))) for _ in range(2))
        step = rng.choice([1, 1, 1, 14, 16, 28, 32, 48, 448])
        yield max(1, width // step) * step, max(1, height // step) * step


def ask(preset: str, *items: MediaSize, overrides: dict[str, Any] | None = None, **state: Any) -> RequestCount:
    return count_request(load_settings(preset, overrides=overrides), CountRequest(items=items, **state))


def only_region(preset: str, item: MediaSize, **overrides: Any) -> Region:
    return ask(preset, item, overrides=overrides).items[0].regions[0]


def installed_function(module: str, name: str, **world: Any) -> Callable[..., Any]:
    """One function of an installed transformers module, without importing the module; it sees ``world``."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "models" / f"{module}.py").read_text()
    nodes = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    if not nodes:
        pytest.skip(f"this transformers has no {name} in {module}")
    names: dict[str, Any] = {"math": math, **world}
    exec(compile(ast.Module(body=[nodes[0]], type_ignores=[]), module, "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


# Nemotron


def test_nemotron_keeps_every_bound_of_its_rule() -> None:
    settings = load_settings("nemotron_omni")
    rng = random.Random("bounds")
    pool = list(sizes("nemotron", 4000))
    for _ in range(ROUNDS):
        items = tuple(MediaSize("image", *rng.choice(pool)) for _ in range(rng.randint(1, 12)))
        length, text = (
            rng.choice([200, 256, 300, 512, 1024, 4096, 16384, 32768, 131072]),
            rng.choice([0, 0, 10, 700]),
        )
        counted = count_request(settings, CountRequest(items=items, max_model_len=length, text_tokens=text))
        budget = max((length - text - 4) * 4, 1024 * len(items))
        areas = [math.prod(item.regions[0].grid or ()) for item in counted.items]
        # A side never shrinks under one token, so only a very elongated image may pass the budget.
        slim = any(item.regions[0].grid is None or 2 in item.regions[0].grid for item in counted.items)
        assert sum(areas) <= budget or slim
        for item, area in zip(counted.items, areas, strict=True):
            height, width = item.regions[0].grid or (1, 1)
            assert height % 2 == width % 2 == 0
            assert item.run_lengths == (area // 4,)
            assert area <= 13312 or slim
            assert item.regions[0].processed_size == (16 * width, 16 * height)
        if len(items) == 1 and length >= 512 and text == 0:
            assert areas[0] >= 1024


def test_nemotron_does_not_depend_on_the_order_of_its_items() -> None:
    settings = load_settings("nemotron_omni")
    rng = random.Random("order")
    pool = list(sizes("order", 500))
    for _ in range(500):
        items = [MediaSize("image", *rng.choice(pool)) for _ in range(rng.randint(2, 6))]
        order = list(range(len(items)))
        rng.shuffle(order)
        straight = count_request(settings, CountRequest(items=tuple(items), max_model_len=4096)).items
        mixed = tuple(items[place] for place in order)
        shuffled = count_request(settings, CountRequest(items=mixed, max_model_len=4096)).items
        assert [shuffled[order.index(place)] for place in range(len(items))] == list(straight)


def test_nemotron_images_are_those_of_transformers_without_the_joint_budget() -> None:
    grid_of = installed_function("nemotron_h_omni/image_processing_nemotron_h_omni", "get_patch_grid_size")
    settings = load_settings("nemotron_omni_transformers")
    rng = random.Random("transformers")
    for width, height in sizes("transformers"):
        length = rng.choice([256, 300, 512, 1024, 2000, 16384, 32768])
        counted = count_request(
            settings, CountRequest(items=(MediaSize("image", width, height),), max_model_len=length)
        )
        budget = max(min(max((length - 4) * 4, 1024), 13312), 1024)
        assert counted.items[0].regions[0].grid == grid_of(height, width, 16, 2, 1024, budget)


def test_nemotron_single_images_do_not_notice_the_joint_budget() -> None:
    joint, alone = load_settings("nemotron_omni"), load_settings("nemotron_omni_transformers")
    for width, height in sizes("single", 2000):
        request = CountRequest(items=(MediaSize("image", width, height),), max_model_len=2048)
        assert count_request(joint, request).items == count_request(alone, request).items


def test_nemotron_videos_are_those_of_transformers() -> None:
    target_of = installed_function("nemotron_h_omni/video_processing_nemotron_h_omni", "_compute_target_patches")
    rng = random.Random("videos")
    for width, height in sizes("videos"):
        target, keep, frames = rng.choice([256, 576, 1000, 1024, 2304]), rng.random() < 0.7, rng.randint(1, 9)
        processor = SimpleNamespace(
            video_target_num_patches=target, video_maintain_aspect_ratio=keep, _downsample_factor=2
        )
        columns, rows = target_of(processor, height, width)
        overrides = {"video": {"target_num_patches": target, "maintain_aspect_ratio": keep}}
        (item,) = ask("nemotron_omni", MediaSize("video", width, height, frames), overrides=overrides).items
        assert {region.grid for region in item.regions} == {(rows, columns)}
        assert item.run_lengths == (rows * columns // 4,) * math.ceil(frames / 2)


def test_nano_vl_and_internvl_tiles_are_those_of_transformers() -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    for side, most, preset in ((448, 12, "internvl"), (512, 12, "nemotron_nano_vl"), (512, 4, "nemotron_nano_vl")):
        processor = GotOcr2ImageProcessorPil(
            size={"height": side, "width": side}, crop_to_patches=True, min_patches=1, max_patches=most
        )
        overrides = {"max_patches" if preset == "internvl" else "max_num_tiles": most}
        settings = load_settings(preset, overrides=overrides)
        for width, height in sizes(f"{preset}{most}"):
            (item,) = count_request(settings, CountRequest(items=(MediaSize("image", width, height),))).items
            tiles = processor.get_number_of_image_patches(height, width, {})
            assert item.run_lengths == (256 * tiles,)
            assert 1 <= tiles <= most + 1


# Qwen


@pytest.mark.parametrize("preset", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_vl_class_default"])
def test_qwen_images_are_those_of_transformers(preset: str) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

    settings = load_settings(preset)
    assert isinstance(settings, QwenSettings)
    bounds = {"shortest_edge": settings.min_pixels, "longest_edge": settings.max_pixels}
    processor = Qwen2VLImageProcessorPil(size=bounds, patch_size=settings.patch_size)
    for width, height in sizes(preset):
        request = CountRequest(items=(MediaSize("image", width, height),))
        if max(width, height) > 200 * min(width, height):
            with pytest.raises(RowError):
                count_request(settings, request)
            with pytest.raises(ValueError):
                processor.get_number_of_image_patches(height, width, {})
            continue
        region = count_request(settings, request).items[0].regions[0]
        assert region.grid is not None
        assert region.total == processor.get_number_of_image_patches(height, width, {}) // 4
        resized = smart_resize(height, width, settings.factor, settings.min_pixels, settings.max_pixels)
        assert region.processed_size == resized[::-1]
        assert region.grid[0] % 2 == region.grid[1] % 2 == 0
        # A side never shrinks under one token, so only a very elongated image may pass the bound.
        assert math.prod(resized) <= settings.max_pixels or settings.factor in resized


@pytest.mark.parametrize("preset", ["qwen3_vl", "qwen3_vl_class_default"])
def test_qwen3_videos_are_those_of_transformers(preset: str) -> None:
    resize = installed_function("qwen3_vl/video_processing_qwen3_vl", "smart_resize")
    settings = load_settings(preset)
    assert isinstance(settings, QwenSettings)
    rng = random.Random(preset)
    for width, height in sizes(preset):
        frames = rng.choice([1, 2, 3, 4, 5, 7, 16, 64, 200])
        request = CountRequest(items=(MediaSize("video", width, height, frames),))
        try:
            expected = resize(
                frames,
                height,
                width,
                2,
                32,
                min_pixels=settings.video_min_pixels,
                max_pixels=settings.video_max_pixels,
            )
        except ValueError:
            with pytest.raises(RowError):
                count_request(settings, request)
            continue
        (item,) = count_request(settings, request).items
        assert {region.processed_size for region in item.regions} == {expected[::-1]}
        assert item.run_lengths == (math.prod(expected) // 1024,) * math.ceil(frames / 2)


@pytest.mark.parametrize("preset", ["qwen2_5_vl", "qwen2_vl_class_default"])
def test_qwen2_videos_are_those_of_transformers(preset: str) -> None:
    resize = installed_function("qwen2_vl/video_processing_qwen2_vl", "smart_resize")
    settings = load_settings(preset)
    assert isinstance(settings, QwenSettings)
    rng = random.Random(preset)
    for width, height in sizes(preset):
        frames = rng.choice([1, 2, 3, 5, 16, 64])
        request = CountRequest(items=(MediaSize("video", width, height, frames),))
        try:
            expected = resize(height, width, 28, settings.video_min_pixels, settings.video_max_pixels)
        except ValueError:
            with pytest.raises(RowError):
                count_request(settings, request)
            continue
        (item,) = count_request(settings, request).items
        assert item.run_lengths == (math.prod(expected) // 784 * math.ceil(frames / 2),)
        assert item.regions[0].frames == (0, frames)


@pytest.mark.parametrize(
    ("preset", "module"),
    [("qwen2_vl_class_default", "qwen2_vl"), ("qwen2_5_vl", "qwen2_vl"), ("qwen3_vl", "qwen3_vl")],
)
def test_the_cap_on_qwen_videos_is_that_of_transformers(preset: str, module: str) -> None:
    path = f"{module}/video_processing_{module}"
    resize = installed_function(
        path,
        "resize",
        smart_resize=installed_function(path, "smart_resize"),
        SizeDict=SimpleNamespace,
        super=lambda: SimpleNamespace(resize=lambda **given: given["size"]),
    )
    settings = load_settings(preset, overrides={"cap_pixels_per_frame": True})
    uncapped = load_settings(preset)
    assert isinstance(settings, QwenSettings)
    bounds = SimpleNamespace(shortest_edge=settings.video_min_pixels, longest_edge=settings.video_max_pixels)
    rng = random.Random(f"cap {preset}")
    capped = 0
    for width, height in sizes(f"cap {preset}", 1000):
        frames = rng.choice([2, 3, 16, 64, 300, 301, 768])
        request = CountRequest(items=(MediaSize("video", width, height, frames),))
        try:
            size = resize(
                SimpleNamespace(max_video_tokens=settings.max_video_tokens),
                SimpleNamespace(shape=(1, frames, 3, height, width)),
                bounds,
                None,
                settings.factor,
                2,
                cap_pixels_per_frame=True,
            )
        except ValueError:
            with pytest.raises(RowError):
                count_request(settings, request)
            continue
        region = count_request(settings, request).items[0].regions[0]
        assert region.processed_size == (size.width, size.height)
        free = count_request(uncapped, request).items[0].regions[0]
        capped += free.processed_size != region.processed_size
    assert capped > 20


# Gemma 4


@pytest.mark.parametrize("budget", [70, 280, 1120])
def test_gemma4_images_are_those_of_transformers(budget: int) -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

    settings = load_settings("gemma4", overrides={"max_soft_tokens": budget})
    for width, height in sizes(f"gemma4{budget}"):
        request = CountRequest(items=(MediaSize("image", width, height),))
        try:
            tall, wide = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
        except ValueError:
            with pytest.raises(RowError):
                count_request(settings, request)
            continue
        region = count_request(settings, request).items[0].regions[0]
        assert region.processed_size == (wide, tall)
        assert region.total == (tall // 48) * (wide // 48) <= budget


# Pixels


def test_counts_are_those_of_the_pixel_path() -> None:
    import numpy as np
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    qwen = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 12845056})
    tiles = GotOcr2ImageProcessorPil(size={"height": 448, "width": 448}, crop_to_patches=True)
    gemma = Gemma4ImageProcessorPil()
    for width, height in [(640, 360), (97, 311), (28, 28), (500, 499), (1000, 60)]:
        pixels = np.zeros((height, width, 3), np.uint8)
        item = MediaSize("image", width, height)
        grid = qwen(images=[pixels], return_tensors="np", input_data_format="channels_last")["image_grid_thw"][0]
        assert only_region("qwen2_5_vl", item).grid == tuple(grid[1:])
        cut = tiles(images=[pixels], return_tensors="np", input_data_format="channels_last")
        assert only_region("internvl", item).total == 256 * len(cut["pixel_values"])
        soft = gemma(images=[pixels], return_tensors="np", input_data_format="channels_last")
        assert only_region("gemma4", item).total == soft["num_soft_tokens_per_image"][0]


# Grids of reconciled images, against trying every budget there is


def test_the_search_finds_what_trying_every_budget_finds() -> None:
    settings = load_settings("nemotron_omni", overrides={"min_num_patches": 256, "max_num_patches": 1600})
    assert isinstance(settings, NemotronOmniSettings)
    rng = random.Random("search")
    unique = ambiguous = 0
    for width, height in sizes("search", 150, longest=4000):
        item = MediaSize("image", width, height)
        every = set()
        for budget in range(256, 1601):
            try:
                every.add(settings.image_grid(item, budget))
            except RowError:
                continue
        targets = {math.prod(grid) // 4 for grid in every}
        try:
            beyond = math.prod(settings.image_grid(item, 2**40)) // 4
        except RowError:
            beyond = 1
        for target in [*rng.sample(sorted(targets), min(4, len(targets))), rng.randint(1, 500), beyond]:
            grids = [grid for grid in every if math.prod(grid) == 4 * target]
            found = grid_for_count(settings, item, target)
            assert (None if found is None else found[0]) == (grids[0] if len(grids) == 1 else None)
            unique += len(grids) == 1
            ambiguous += len(grids) > 1
    assert unique > 100
    assert ambiguous > 0


def test_the_search_of_qwen_finds_what_trying_every_bound_finds() -> None:
    settings = load_settings("qwen2_vl", overrides={"min_pixels": 3136, "max_pixels": 40_000})
    assert isinstance(settings, QwenSettings)
    for width, height in sizes("qwen search", 25, longest=400):
        item = MediaSize("image", width, height)
        if max(width, height) > 200 * min(width, height):
            continue
        every = {settings.image_blocks(item, most) for most in range(3136, 40_001)}
        for target in {math.prod(blocks) for blocks in every} | {7, 33}:
            blocks = [pair for pair in every if math.prod(pair) == target]
            found = grid_for_count(settings, item, target)
            expected = (2 * blocks[0][0], 2 * blocks[0][1]) if len(blocks) == 1 else None
            assert (None if found is None else found[0]) == expected


@pytest.mark.parametrize("preset", ["nemotron_omni", "qwen2_5_vl", "qwen3_vl", "internvl", "gemma4"])
def test_the_search_finds_every_unshrunk_grid_or_refuses(preset: str) -> None:
    settings = load_settings(preset)
    found = 0
    for width, height in sizes(f"unshrunk {preset}", 300):
        item = MediaSize("image", width, height)
        try:
            region = count_request(settings, CountRequest(items=(item,), max_model_len=32768)).items[0].regions[0]
        except RowError:
            continue
        grid = grid_for_count(settings, item, region.total)
        assert grid is None or grid == (region.grid, region.processed_size)
        found += grid is not None
    assert found > 150
