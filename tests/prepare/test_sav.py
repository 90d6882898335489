# SPDX-License-Identifier: Apache-2.0
"""SA-V in its published layouts to rows; every mask, point, box and frame number against the painted truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from nemo_gym_video.prepare.outcome import Outcome
from nemo_gym_video.prepare.sav.sav_published import read_json_annotation
from nemo_gym_video.prepare.sav.sav_rows import TrackRules
from nemo_gym_video.prepare.sav.sav_source import SavSource
from nemo_gym_video.prepare.synthetic.clips import HARD, SyntheticSet, hard_scene, scene_footage, synthesize
from nemo_gym_video.prepare.synthetic.scene import Scene, paint
from nemo_gym_video.tasks.tracking.prompts import read_frame_label, read_track_prompt
from nemo_gym_video.tasks.tracking.schema import Task
from nemo_gym_video.tasks.tracking.scoring import score_tracks
from nemo_gym_video.tasks.tracking.track_row import TrackRow


@dataclass(frozen=True)
class Truth:
    """One rendered scene: pixels uint8 [frames, h, w, 3], masks bool [frames, sprites, h, w]."""

    scene: Scene
    pixels: np.ndarray
    masks: np.ndarray


TASKS: list[Task] = ["pt", "box", "ref"]
RULES = TrackRules(num_frames=12, max_objects=3)


def source_of(native: SyntheticSet, task: Task, **changes: Any) -> SavSource:
    words = native.expressions if task == "ref" else None
    settings: dict[str, Any] = {
        "root": native.sav_root, "task": task, "expressions": words, "rules": RULES, "rows_per_video": 3,
    }  # fmt: skip
    return SavSource(**{**settings, **changes})


def outcomes_of(source: SavSource, output: Path) -> list[Outcome]:
    source.check()
    return [outcome for item in source.items() for outcome in source.prepare(item, output)]


def rows_of(source: SavSource, output: Path) -> list[dict[str, Any]]:
    rows = [outcome.row for outcome in outcomes_of(source, output)]
    assert None not in rows
    return [row for row in rows if row is not None]


def content_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = row["responses_create_params"]["input"][0]["content"]
    return content


def labelled_stills(row: dict[str, Any]) -> dict[int, str]:
    """Image paths by frame number; every image must stand right after its label."""
    content = content_of(row)
    stills = {}
    for label, part in pairwise(content):
        if part["type"] == "input_image":
            number = read_frame_label(label.get("text", ""))
            assert number is not None
            stills[number] = part["image_url"]
    return stills


def prompt_of(row: dict[str, Any]) -> str:
    return next(str(part["text"]) for part in content_of(row) if "<answer>" in part.get("text", ""))


def pixel(value: float, extent: int) -> int:
    return min(int(value / 1000 * extent), extent - 1)


def check_row(row: dict[str, Any], task: Task, painted: Any, root: Path) -> None:
    """Every number of a row against the painted clip."""
    base = 1 if task == "ref" else 0
    meta = row["metadata"]
    assert meta["video_frames"] == [4 * index for index in meta["annotation_frames"]]
    assert meta["fps"] == 6.0
    stills = labelled_stills(row)
    assert sorted(stills) == list(range(base, base + len(meta["video_frames"])))
    for number, path in stills.items():
        still = np.asarray(Image.open(root / path)).astype(int)
        frame = meta["video_frames"][number - base]
        near = {one: np.abs(still - painted.pixels[one]).mean() for one in (frame - 4, frame, frame + 4)
                if 0 <= one < len(painted.pixels)}  # fmt: skip
        assert min(near, key=lambda one: near[one]) == frame
    height, width = painted.masks.shape[2:]
    for one, column in zip(row["objects"], meta["masklet_ids"], strict=True):
        masks = painted.masks[:, column]
        first = 1
        if task != "ref":
            first = one["reference_frame"] + 1
            reference = masks[meta["video_frames"][one["reference_frame"]]]
            check_place(one.get("reference_xy"), one.get("reference_bbox"), reference)
            late = one["reference_frame"] > 0
            assert not (late and masks[meta["video_frames"][0]].any())
        assert [target["frame"] for target in one["targets"]] == list(range(first, base + len(stills)))
        for target in one["targets"]:
            mask = masks[meta["video_frames"][target["frame"] - base]]
            assert target["visible"] == bool(mask.any())
            if not target["visible"]:
                assert set(target) == {"frame", "visible"}
                continue
            check_place(target.get("xy"), target.get("bbox"), mask)
            if task == "box":
                assert "mask" not in target
                continue
            rle = target["mask"]
            assert rle["size"] == [height, width]
            assert np.array_equal(coco.decode({**rle, "counts": rle["counts"].encode()}).astype(bool), mask)


def check_place(xy: list[int] | None, bbox: list[int] | None, mask: np.ndarray) -> None:
    height, width = mask.shape
    assert (xy is None) != (bbox is None)
    if xy is not None:
        assert mask[pixel(xy[1], height), pixel(xy[0], width)]
    if bbox is not None:
        lines, columns = np.nonzero(mask)
        sides = [
            columns.min() / width,
            lines.min() / height,
            (columns.max() + 1) / width,
            (lines.max() + 1) / height,
        ]
        assert bbox == pytest.approx([1000 * side for side in sides], abs=1.0)
        assert bbox[0] < bbox[2]
        assert bbox[1] < bbox[3]


@pytest.mark.parametrize("task", TASKS)
def test_train_rows_agree_with_the_truth(
    native: SyntheticSet, truth: Callable[[str], Any], tmp_path: Path, task: Task
) -> None:
    rows = rows_of(source_of(native, task), tmp_path)
    assert len(rows) == 12
    for row in rows:
        check_row(row, task, truth(row["metadata"]["video_id"]), tmp_path)
        TrackRow.from_row(row)


@pytest.mark.parametrize("task", TASKS)
def test_val_rows_agree_with_the_truth_and_keep_the_published_bytes(
    native: SyntheticSet, truth: Callable[[str], Any], val_root: Path, tmp_path: Path, task: Task
) -> None:
    source = source_of(native, task, root=val_root, split="val")
    rows = rows_of(source, tmp_path)
    assert len(rows) == 6
    for row in rows:
        video_id = row["metadata"]["video_id"]
        check_row(row, task, truth(video_id), tmp_path)
        base = 1 if task == "ref" else 0
        for number, path in labelled_stills(row).items():
            frame = row["metadata"]["video_frames"][number - base]
            published = val_root / "JPEGImages_24fps" / video_id / f"{frame:05d}.jpg"
            assert (tmp_path / path).read_bytes() == published.read_bytes()


@pytest.mark.parametrize("task", TASKS)
def test_the_prompt_names_the_targets_of_the_row(native: SyntheticSet, tmp_path: Path, task: Task) -> None:
    for row in rows_of(source_of(native, task), tmp_path):
        read = read_track_prompt(prompt_of(row))
        assert read is not None
        assert read[0] == task
        for one, target in zip(row["objects"], read[1], strict=True):
            assert target.id == one["id"]
            if task == "ref":
                assert target.expression == one["expression"]
            else:
                assert target.frame == one["reference_frame"]
                assert list(target.xy or target.bbox or ()) == one.get("reference_xy", one.get("reference_bbox"))


@pytest.mark.parametrize("task", TASKS)
def test_the_true_answer_scores_one_and_a_shifted_one_does_not(
    native: SyntheticSet, tmp_path: Path, task: Task
) -> None:
    key = {"pt": "point", "box": "box", "ref": "id"}[task]
    for row in rows_of(source_of(native, task), tmp_path):
        entries = [
            {key: one["id"], **{name: target[name] for name in target if name != "mask"}}
            for one in row["objects"]
            for target in one["targets"]
        ]
        answer = "<answer>" + json.dumps({"tracks": entries}) + "</answer>"
        track_row = TrackRow.from_row(row)
        assert score_tracks(answer, track_row).reward == pytest.approx(1.0)
        for entry in entries:
            entry["frame"] += 1
        assert score_tracks("<answer>" + json.dumps({"tracks": entries}) + "</answer>", track_row).reward < 0.99


def test_expressions_are_those_of_the_rows_objects(
    native: SyntheticSet, truth: Callable[[str], Any], tmp_path: Path
) -> None:
    for row in rows_of(source_of(native, "ref"), tmp_path):
        sprites = truth(row["metadata"]["video_id"]).scene.sprites
        for one, column in zip(row["objects"], row["metadata"]["masklet_ids"], strict=True):
            assert one["expression"] == f"the {sprites[column].colour} {sprites[column].shape}"


def test_late_points_appear_and_rows_start_with_one_in_frame_0(native: SyntheticSet, tmp_path: Path) -> None:
    rows = rows_of(source_of(native, "pt", rows_per_video=12), tmp_path)
    frames = [[one["reference_frame"] for one in row["objects"]] for row in rows]
    assert any(max(group) > 0 for group in frames)
    assert all(min(group) == 0 for group in frames)


def test_seeds_and_variants_choose_and_one_seed_chooses_alike(native: SyntheticSet, tmp_path: Path) -> None:
    first = rows_of(source_of(native, "pt"), tmp_path / "a")
    assert rows_of(source_of(native, "pt"), tmp_path / "b") == first
    assert rows_of(source_of(native, "pt", seed=1), tmp_path / "c") != first
    assert len({prompt_of(row) for row in first}) == len(first)


# What the report must name. Each case changes one native file of a copy and says which reason comes out.


def annotation_changed(native: SyntheticSet, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    root = tmp_path / "sav"
    root.mkdir()
    folder = native.sav_root / "sav_000"
    shutil.copy(folder / "sav_000001.mp4", root)
    annotation = json.loads((folder / "sav_000001_manual.json").read_text())
    change(annotation)
    (root / "sav_000001_manual.json").write_text(json.dumps(annotation))
    return root


def reason_of(root: Path, output: Path, task: Task = "pt", **changes: Any) -> tuple[str | None, str | None]:
    source = SavSource(root=root, task=task, **changes)
    (outcome,) = outcomes_of(source, output)
    return outcome.reason, outcome.message


def drop_last(annotation: dict[str, Any]) -> None:
    annotation["masklet"].pop()


def rename_counts(annotation: dict[str, Any]) -> None:
    annotation["masklet"][3][0]["counts"] = annotation["masklet"][3][0]["counts"][:-2]


def break_total(annotation: dict[str, Any]) -> None:
    annotation["masklet"][0][1]["counts"] = [10, 20, 30]


def other_size(annotation: dict[str, Any]) -> None:
    annotation["masklet"][2][1]["size"] = [100, 200]


def other_video(annotation: dict[str, Any]) -> None:
    width, height = annotation["video_width"], annotation["video_height"]
    annotation["video_width"], annotation["video_height"] = height, width
    for frame in annotation["masklet"]:
        for cell in frame:
            cell["size"] = cell["size"][::-1]


def other_count(annotation: dict[str, Any]) -> None:
    annotation["video_frame_count"] = 83.0


def no_masks(annotation: dict[str, Any]) -> None:
    annotation["masklet"] = [[None for _ in frame] for frame in annotation["masklet"]]


def no_objects(annotation: dict[str, Any]) -> None:
    annotation["masklet"] = [[] for _ in annotation["masklet"]]
    annotation["masklet_id"] = []


def ragged(annotation: dict[str, Any]) -> None:
    annotation["masklet"][5] = annotation["masklet"][5][:1]


def one_line(annotation: dict[str, Any]) -> None:
    """Masks one pixel thick: nothing to put a reference on."""
    size = [int(annotation["video_height"]), int(annotation["video_width"])]
    mask = np.zeros(size, dtype=np.uint8, order="F")
    mask[50, 20:90] = 1
    cell = {"size": size, "counts": coco.encode(mask)["counts"].decode()}
    annotation["masklet"] = [[cell for _ in frame] for frame in annotation["masklet"]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop_last, "count_mismatch"), (other_count, "count_mismatch"), (rename_counts, "bad_mask"),
        (break_total, "bad_mask"), (other_size, "size_mismatch"), (other_video, "size_mismatch"),
        (no_masks, "empty_mask"), (no_objects, "no_object"), (ragged, "malformed"), (one_line, "thin_mask"),
    ],
)  # fmt: skip
def test_annotations_that_do_not_fit_are_named(
    native: SyntheticSet, tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    root = annotation_changed(native, tmp_path, change)
    found, message = reason_of(root, tmp_path / "out")
    assert found == reason, message


def test_null_cells_and_list_counts_are_read_as_published_ones(native: SyntheticSet, tmp_path: Path) -> None:
    def loosen(annotation: dict[str, Any]) -> None:
        for frame in annotation["masklet"]:
            for number, cell in enumerate(frame):
                mask = coco.decode({**cell, "counts": cell["counts"].encode()})
                flat = mask.flatten(order="F")
                if not flat.any():
                    frame[number] = None
                    continue
                edges = np.flatnonzero(np.diff(np.concatenate([[0], flat, [1 - flat[-1]]])))
                runs = np.diff(np.concatenate([[0], edges]))
                cell["counts"] = [int(run) for run in runs]

    loose = annotation_changed(native, tmp_path, loosen)
    strict = tmp_path / "strict"
    strict.mkdir()
    for name in ("sav_000001.mp4", "sav_000001_manual.json"):
        shutil.copy(native.sav_root / "sav_000" / name, strict)
    rows = {}
    for root in (loose, strict):
        # The seed follows the annotation's bytes, so windows differ; compare what is read instead.
        rows[root] = read_json_annotation(root / "sav_000001_manual.json").masks
    assert rows[loose] == rows[strict]


def test_missing_and_broken_files_are_named(native: SyntheticSet, tmp_path: Path) -> None:
    root = annotation_changed(native, tmp_path, lambda _: None)
    video, annotation = root / "sav_000001.mp4", root / "sav_000001_manual.json"
    whole = video.read_bytes()
    video.unlink()
    assert reason_of(root, tmp_path / "out")[0] == "missing"
    video.write_bytes(b"")
    assert reason_of(root, tmp_path / "out")[0] == "unreadable"
    video.write_bytes(b"not a video at all, but long enough to be looked at")
    assert reason_of(root, tmp_path / "out")[0] == "no_video_stream"
    video.write_bytes(whole[: len(whole) // 2])
    assert reason_of(root, tmp_path / "out")[0] in ("unreadable", "count_mismatch", "no_frames")
    video.write_bytes(whole)
    annotation.write_text("{")
    assert reason_of(root, tmp_path / "out")[0] == "unreadable"
    annotation.unlink()
    assert reason_of(root, tmp_path / "out")[0] == "missing"


def test_short_videos_and_missing_words_are_skipped_by_name(native: SyntheticSet, tmp_path: Path) -> None:
    root = annotation_changed(native, tmp_path, lambda _: None)
    rules = TrackRules(min_frames=40)
    assert reason_of(root, tmp_path / "out", rules=rules)[0] == "too_short"
    words = tmp_path / "words.json"
    words.write_text(json.dumps([{"video_id": "other", "object_id": 0, "expression": "the cat"}]))
    assert reason_of(root, tmp_path / "out", "ref", expressions=words)[0] == "no_expression"
    words.write_text(json.dumps({"sav_000001": {"0": "the <image> cat"}}))
    assert reason_of(root, tmp_path / "out", "ref", expressions=words)[0] == "placeholder_text"


def test_val_frames_that_do_not_fit_are_named(val_root: Path, tmp_path: Path) -> None:
    root = tmp_path / "val"
    shutil.copytree(val_root, root)
    (root / "sav_val.txt").write_text("sav_000001\n")
    frames = root / "JPEGImages_24fps" / "sav_000001"
    (frames / "00083.jpg").unlink()
    assert reason_of(root, tmp_path / "out", split="val")[0] is None  # ceil(83 / 4) is 21 as well
    for index in range(80, 83):
        (frames / f"{index:05d}.jpg").unlink()
    assert reason_of(root, tmp_path / "out", split="val")[0] == "count_mismatch"
    shutil.rmtree(frames)
    assert reason_of(root, tmp_path / "out", split="val")[0] == "missing"


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> SyntheticSet:
    root = tmp_path_factory.mktemp("hard")
    return synthesize(root, seed=3, scenes=0, montages=0, size=(160, 96), seconds=3.0, real=False, hard=True)


def hard_truth(video_id: str) -> Truth:
    scene = hard_scene(video_id, 3, size=(160, 96), seconds=3.0)
    background = scene_footage([3, list(HARD).index(video_id)], size=(160, 96), real=False)
    frames = list(paint(scene, background))
    return Truth(scene, np.stack([pixels for pixels, _ in frames]), np.stack([masks for _, masks in frames]))


@pytest.mark.parametrize("task", TASKS)
def test_odd_files_give_rows_of_the_displayed_frames(hard: SyntheticSet, tmp_path: Path, task: Task) -> None:
    rows = rows_of(source_of(hard, task, rows_per_video=1), tmp_path)
    assert sorted(row["metadata"]["video_id"] for row in rows) == sorted(HARD)
    for row in rows:
        painted = hard_truth(row["metadata"]["video_id"])
        row["metadata"]["fps"] = 6.0  # the uneven clip's average is a little more
        check_row(row, task, painted, tmp_path)


def test_timestamps_come_from_the_stream(hard: SyntheticSet, tmp_path: Path) -> None:
    rows = {row["metadata"]["video_id"]: row["metadata"] for row in rows_of(source_of(hard, "pt"), tmp_path)}
    late, uneven = rows["late_start"], rows["variable_rate"]
    assert late["timestamps"] == pytest.approx([2.5 + frame / 24 for frame in late["video_frames"]], abs=1e-5)
    # Frames 0, 4, 8 … of the uneven clip are even ones, which stand where even frames stand.
    assert uneven["timestamps"] == pytest.approx([frame / 24 for frame in uneven["video_frames"]], abs=1e-5)


def test_automatic_annotations_are_read_alike(native: SyntheticSet, tmp_path: Path) -> None:
    root = annotation_changed(
        native, tmp_path, lambda annotation: annotation.update(masklet_first_appeared_frame=0)
    )
    (root / "sav_000001_manual.json").rename(root / "sav_000001_auto.json")
    (row,) = rows_of(SavSource(root=root, task="box", annotation="auto", rules=RULES), tmp_path / "out")
    assert row["metadata"]["annotation_type"] == "auto"
    assert reason_of(root, tmp_path / "out")[0] == "missing"
