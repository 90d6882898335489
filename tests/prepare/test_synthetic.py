# SPDX-License-Identifier: Apache-2.0
"""The native files against the renderer's truth, read with pycocotools and a plain sequential decode."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from pycocotools import mask as coco

from nemo_gym_video.prepare.mcqa_prompt import read_options
from nemo_gym_video.prepare.synthetic.backgrounds import real_clips_installed
from nemo_gym_video.prepare.synthetic.clips import SyntheticSet, synthesize
from nemo_gym_video.prepare.synthetic.demo_rows import ENVIRONMENTS, demo_rows
from nemo_gym_video.prepare.synthetic.questions import read_question, read_time
from nemo_gym_video.tasks.tracking.blind import blind_rewards
from nemo_gym_video.tasks.tracking.track_row import TrackRow

KEYS = {
    "video_id", "video_duration", "video_frame_count", "video_height", "video_width", "video_resolution",
    "video_environment", "video_split", "masklet", "masklet_id", "masklet_size_rel", "masklet_size_abs",
    "masklet_size_bucket", "masklet_visibility_changes", "masklet_first_appeared_frame", "masklet_frame_count",
    "masklet_edited_frame_count", "masklet_type", "masklet_stability_score", "masklet_num",
}  # fmt: skip


def annotation_of(native: SyntheticSet, video_id: str) -> dict[str, Any]:
    path = native.sav_root / "sav_000" / f"{video_id}_manual.json"
    annotation: dict[str, Any] = json.loads(path.read_text())
    return annotation


def decoded(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_the_annotation_has_the_published_keys_and_counts(native: SyntheticSet) -> None:
    annotation = annotation_of(native, "sav_000001")
    assert set(annotation) == KEYS
    assert annotation["video_frame_count"] == 84.0
    assert len(annotation["masklet"]) == 21
    assert all(len(frame) == annotation["masklet_num"] == 3 for frame in annotation["masklet"])
    assert isinstance(annotation["masklet_first_appeared_frame"][0], float)
    assert annotation["masklet_stability_score"][0] == [None, None, None]


def test_every_mask_decodes_to_the_painted_one(native: SyntheticSet, truth: Callable[[str], Any]) -> None:
    for video_id in native.scene_ids:
        painted = truth(video_id).masks
        for index, frame in enumerate(annotation_of(native, video_id)["masklet"]):
            for number, cell in enumerate(frame):
                mask = coco.decode({"size": cell["size"], "counts": cell["counts"].encode()}).astype(bool)
                assert np.array_equal(mask, painted[4 * index, number]), (video_id, index, number)


def test_absent_objects_are_all_zero_masks_not_null(native: SyntheticSet) -> None:
    cells = [
        cell
        for video_id in native.scene_ids
        for frame in annotation_of(native, video_id)["masklet"]
        for cell in frame
    ]
    areas = [coco.area({"size": cell["size"], "counts": cell["counts"].encode()}) for cell in cells]
    assert 0 in areas
    assert None not in cells


def test_the_clip_shows_what_was_painted(native: SyntheticSet, truth: Callable[[str], Any]) -> None:
    shown = decoded(native.sav_root / "sav_000" / "sav_000002.mp4")
    painted = truth("sav_000002").pixels
    assert len(shown) == len(painted) == 84
    errors = [float(np.abs(a.astype(int) - b).mean()) for a, b in zip(shown, painted, strict=True)]
    assert max(errors) < 6
    shifted = float(np.abs(shown[40].astype(int) - painted[44]).mean())
    assert shifted > errors[40] + 1


def test_the_same_seed_gives_the_same_bytes(
    native: SyntheticSet, tmp_path: Path, tree: Callable[[Path], dict[str, bytes]]
) -> None:
    synthesize(tmp_path, seed=5, scenes=4, montages=2, size=(192, 108), seconds=3.5, real=False)
    assert tree(tmp_path) == tree(native.root)


def questions_of(native: SyntheticSet) -> list[tuple[str, dict[str, Any]]]:
    lines = [json.loads(line) for line in native.questions.read_text().splitlines()]
    return [(line["videos"][0], fields) for line in lines for fields in line["reward_model"]["ground_truth"]]


def test_enter_and_leave_answers_agree_with_the_masks(native: SyntheticSet, truth: Callable[[str], Any]) -> None:
    checked = 0
    for video, fields in questions_of(native):
        read = read_question(fields["question"])
        assert read is not None
        if read.kind not in ("enter_time", "leave_time"):
            continue
        shown = truth(Path(video).stem)
        number = [(one.colour, one.shape) for one in shown.scene.sprites].index(read.subject or ("", ""))
        frames = np.flatnonzero(shown.masks[:, number].any(axis=(1, 2)))
        true = (frames[0] if read.kind == "enter_time" else frames[-1] + 1) / 24
        options = dict(read_options("\n".join(fields["choices"])))
        errors = {letter: abs((read_time(text) or 0) - true) for letter, text in options.items()}
        assert min(errors, key=lambda letter: errors[letter]) == fields["answer"]
        assert errors.pop(fields["answer"]) <= 0.051
        assert min(errors.values()) > 0.5
        checked += 1
    assert checked >= 6


def test_cut_and_light_answers_agree_with_the_decoded_pixels(native: SyntheticSet) -> None:
    kinds = set()
    for video, fields in questions_of(native):
        read = read_question(fields["question"])
        options = dict(read_options("\n".join(fields["choices"])))
        if read is None or read.kind not in ("hardest_cut", "brightest_second", "darkest_second"):
            continue
        frames = np.stack(decoded(native.root / video)).astype(float)
        answer = read_time(options[fields["answer"]])
        if read.kind == "hardest_cut":
            change = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
            assert answer == pytest.approx((int(change.argmax()) + 1) / 24, abs=0.051)
        else:
            seconds = frames.mean(axis=(1, 2, 3))[: len(frames) // 24 * 24].reshape(-1, 24).mean(axis=1)
            best = seconds.argmax() if read.kind == "brightest_second" else seconds.argmin()
            assert answer == float(best)
        kinds.add(read.kind)
    assert "hardest_cut" in kinds


def test_letters_are_dealt_evenly(tmp_path: Path) -> None:
    made = synthesize(tmp_path, seed=1, scenes=8, montages=0, size=(64, 48), seconds=3, real=False)
    letters = [fields["answer"] for _, fields in questions_of(made)]
    counts = [letters.count(letter) for letter in "ABCD"]
    assert max(counts) - min(counts) <= 1


def test_demo_rows_are_valid_balanced_and_hard_to_answer_blind(tmp_path: Path) -> None:
    real = real_clips_installed()
    made = demo_rows(tmp_path, per_environment=4, size=(128, 72), question_frames=8, real=real)
    assert set(made.files) == set(ENVIRONMENTS)
    for name, file in made.files.items():
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(rows) == 4
        if name == "caprl_mcqa":
            assert sorted(row["expected_answer"] for row in rows) == ["A", "B", "C", "D"]
            types = [row["responses_create_params"]["input"][0]["content"][0]["type"] for row in rows]
            assert sorted(types) == ["input_image", "input_image", "input_video", "input_video"]
            continue
        rewards = [blind_rewards(TrackRow.from_row(row)) for row in rows]
        for policy in rewards[0]:
            assert np.mean([reward[policy] for reward in rewards]) < 0.4, (name, policy)
