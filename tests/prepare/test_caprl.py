# SPDX-License-Identifier: Apache-2.0
"""CAPRL in its published layouts to rows; frames against a sequential decode, answers against the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from nemo_gym_video.messages import group_media, iter_media_parts, media_mode
from nemo_gym_video.prepare.caprl.caprl_published import Columns
from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource
from nemo_gym_video.prepare.mcqa_prompt import BOXED_INSTRUCTION, read_options
from nemo_gym_video.prepare.outcome import Outcome
from nemo_gym_video.prepare.synthetic.clips import SyntheticSet
from nemo_gym_video.prepare.synthetic.encode import write_clip
from nemo_gym_video.tasks.boxed.options import boxed_row


def outcomes_of(source: CaprlSource, output: Path) -> list[Outcome]:
    source.check()
    return [outcome for item in source.items() for outcome in source.prepare(item, output)]


def rows_of(source: CaprlSource, output: Path) -> list[dict[str, Any]]:
    outcomes = outcomes_of(source, output)
    assert [outcome.message for outcome in outcomes if outcome.row is None] == []
    return [outcome.row for outcome in outcomes if outcome.row is not None]


def content_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = row["responses_create_params"]["input"][0]["content"]
    return content


def published(native: SyntheticSet) -> list[tuple[str, str, list[str], str]]:
    """(video, question, choices with labels, answer) of every question of the native file."""
    lines = [json.loads(line) for line in native.questions.read_text().splitlines()]
    return [
        (line["videos"][0], one["question"], one["choices"], one["answer"])
        for line in lines
        for one in line["reward_model"]["ground_truth"]
    ]


def as_jsonl(native: SyntheticSet, path: Path) -> None:
    path.write_text(native.questions.read_text())


def as_json(native: SyntheticSet, path: Path) -> None:
    path.write_text(json.dumps([json.loads(line) for line in native.questions.read_text().splitlines()]))


def as_parquet(native: SyntheticSet, path: Path) -> None:
    rows = [json.loads(line) for line in native.questions.read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def as_parquet_text(native: SyntheticSet, path: Path) -> None:
    """Some writers keep nested columns as JSON text."""
    rows = [json.loads(line) for line in native.questions.read_text().splitlines()]
    for row in rows:
        row["reward_model"]["ground_truth"] = json.dumps(row["reward_model"]["ground_truth"])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(as_jsonl, ".jsonl"), (as_json, ".json"), (as_parquet, ".parquet"), (as_parquet_text, ".parquet")],
)
def test_every_published_form_gives_one_row_a_question(
    native: SyntheticSet, tmp_path: Path, write: Callable[[SyntheticSet, Path], None], suffix: str
) -> None:
    path = tmp_path / f"questions{suffix}"
    write(native, path)
    rows = rows_of(CaprlSource(input=path, video_roots=(native.root,)), tmp_path / "out")
    questions = published(native)
    assert len(rows) == len(questions) > 10
    for row, (video, question, choices, answer) in zip(rows, questions, strict=True):
        boxed_row(row)
        assert content_of(row)[0] == {"type": "input_video", "video_url": video}
        text = content_of(row)[-1]["text"]
        assert text.startswith(question + "\nA. ")
        assert text.endswith(BOXED_INSTRUCTION)
        assert [f"{letter}. {option}" for letter, option in read_options(text)] == choices
        assert [f"{key}. {value}" for one in row["options"] for key, value in one.items()] == choices
        assert row["expected_answer"] == answer
        assert row["grading_mode"] == "strict_single_letter_boxed"
        assert row["agent_ref"] == {"type": "responses_api_agents", "name": "mcqa_simple_agent"}
        assert "Describe" not in text


def trainer_lines(native: SyntheticSet) -> list[dict[str, Any]]:
    """Trainer-style rows in turn: options in the text, as a list, by letter; prompt or question or chat."""
    lines: list[dict[str, Any]] = []
    for number, (video, question, choices, answer) in enumerate(published(native)):
        bare = [choice[3:] for choice in choices]
        if number % 3 == 0:
            text = "\n".join([question, *choices, "Answer with the option's letter."])
            lines.append({"prompt": f"<video>\n{text}", "video": video, "answer": answer, "verifier": "mcqa"})
        elif number % 3 == 1:
            lines.append({"question": question, "options": bare, "videos": [video], "expected_answer": answer})
        else:
            text = "\n".join([question, *choices])
            options = dict(zip("ABCD", bare, strict=True))
            lines.append({"prompt": [{"role": "user", "content": text}], "options": options, "video": video,
                          "answer": bare["ABCD".index(answer)], "verifier": "multiple-choice"})  # fmt: skip
    return lines


def test_trainer_rows_give_the_same_rows_as_the_published_ones(native: SyntheticSet, tmp_path: Path) -> None:
    path = tmp_path / "trainer.jsonl"
    path.write_text("".join(json.dumps(line) + "\n\n" for line in trainer_lines(native)))
    rows = rows_of(CaprlSource(input=path, video_roots=(native.root,)), tmp_path / "out")
    want = rows_of(CaprlSource(input=native.questions, video_roots=(native.root,)), tmp_path / "out")
    for row, other in zip(rows, want, strict=True):
        assert {**row, "metadata": None} == {**other, "metadata": None}


def test_other_columns_are_mapped_by_name(native: SyntheticSet, tmp_path: Path) -> None:
    video, question, choices, answer = published(native)[0]
    path = tmp_path / "own.jsonl"
    path.write_text(
        json.dumps({"q": question, "opts": choices, "gold": answer, "clip": video, "answer": "no"}) + "\n"
    )
    columns = Columns(question="q", options="opts", answer="gold", video="clip")
    (row,) = rows_of(CaprlSource(input=path, video_roots=(native.root,), columns=columns), tmp_path)
    assert row["expected_answer"] == answer
    (outcome,) = outcomes_of(CaprlSource(input=path, video_roots=(native.root,)), tmp_path)
    assert outcome.kind == "error"


def test_tagged_frames_are_the_sampled_frames_without_loss(native: SyntheticSet, tmp_path: Path) -> None:
    source = CaprlSource(input=native.questions, video_roots=(native.root,), transport="frames", num_frames=64)
    row = rows_of(source, tmp_path)[-1]
    parts = list(iter_media_parts(row["responses_create_params"]["input"]))
    assert media_mode(group_media(parts)) == "tagged_frames"
    assert len(parts) == 64
    assert {part.video_source for part in parts} == {row["metadata"]["video"]}
    with av.open(str(native.root / row["metadata"]["video"])) as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert [part.frame_index for part in parts] == [int(i) for i in np.linspace(0, len(decoded) - 1, 64)]
    for part in parts:
        still = np.asarray(Image.open(tmp_path / part.url))
        assert np.array_equal(still, decoded[part.frame_index or 0])
    manifest = json.loads(next(tmp_path.rglob("manifest-*.json")).read_text())
    assert manifest["asked"] == {"convention": "vllm", "num_frames": 64}
    assert manifest["decodable"] == 84
    assert len(manifest["delivered"]) == 64


def test_a_shuffle_moves_the_answer_along_and_is_seeded(native: SyntheticSet, tmp_path: Path) -> None:
    plain = rows_of(CaprlSource(input=native.questions, video_roots=(native.root,)), tmp_path)
    source = CaprlSource(input=native.questions, video_roots=(native.root,), shuffle=True, seed=3)
    shuffled = rows_of(source, tmp_path)
    assert rows_of(source, tmp_path) == shuffled
    moved = 0
    for row, other in zip(plain, shuffled, strict=True):
        options = {key: text for one in row["options"] for key, text in one.items()}
        others = {key: text for one in other["options"] for key, text in one.items()}
        assert sorted(options.values()) == sorted(others.values())
        assert list(others) == list("ABCD")
        assert options[row["expected_answer"]] == others[other["expected_answer"]]
        moved += options != others
    assert moved > len(plain) / 2


def test_options_that_speak_of_others_are_not_shuffled(native: SyntheticSet, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    choices = ["red", "blue", "all of the above"]
    video = published(native)[0][0]
    lines = [{"question": f"Q{n}?", "options": choices, "video": video, "answer": "C"} for n in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = rows_of(CaprlSource(input=path, video_roots=(native.root,), shuffle=True), tmp_path)
    assert {row["expected_answer"] for row in rows} == {"C"}


def test_videos_can_be_taken_into_the_output(native: SyntheticSet, tmp_path: Path) -> None:
    source = CaprlSource(input=native.questions, video_roots=(native.root,), copy_videos=True)
    for row in rows_of(source, tmp_path):
        copy = tmp_path / content_of(row)[0]["video_url"]
        assert copy.read_bytes() == (native.root / row["metadata"]["video"]).read_bytes()


GOOD: dict[str, Any] = {"question": "What?", "options": ["x", "y"], "answer": "A", "video": "clip.mp4"}


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """Videos that cannot become rows, each named for what is wrong."""
    root = tmp_path / "videos"
    frames = [np.full((32, 48, 3), 40 * index, dtype=np.uint8) for index in range(6)]
    write_clip(root / "clip.mp4", frames, fps=24)
    write_clip(root / "one frame.mp4", frames[:1], fps=24)
    (root / "empty.mp4").write_bytes(b"")
    (root / "text.mp4").write_text("this is no video, whatever its name says; " * 20)
    (root / "cut.mp4").write_bytes((root / "clip.mp4").read_bytes()[:300])
    with av.open(str(root / "sound only.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
        sound.sample_rate = 16000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    return root


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"video": "gone.mp4"}, "missing"),
        ({"video": "empty.mp4"}, "unreadable"),
        ({"video": "text.mp4"}, "no_video_stream"),
        ({"video": "sound only.mp4"}, "no_video_stream"),
        ({"video": "cut.mp4"}, "unreadable"),
        ({"video": "one frame.mp4"}, "too_short"),
        ({"video": "../videos/clip.mp4"}, "refused"),
        ({"video": "https://example.org/clip.mp4"}, "refused"),
        ({"video": None}, "malformed"),
        ({"video": ["clip.mp4", "clip.mp4"]}, "malformed"),
        ({"answer": None}, "bad_answer"),
        ({"answer": "Q"}, "bad_answer"),
        ({"options": ["x"]}, "option_mismatch"),
        ({"options": ["B. x", "A. y"]}, "option_mismatch"),
        ({"options": None}, "option_mismatch"),
        ({"question": None}, "malformed"),
        ({"question": "What is <image> here?"}, "placeholder_text"),
        ({"options": ["x", "<video>"]}, "placeholder_text"),
        ({"verifier": "math"}, "malformed"),
        ({"reward_model": {"ground_truth": []}}, "no_question"),
        ({"reward_model": {"ground_truth": ["what?"]}}, "malformed"),
    ],
)  # fmt: skip
def test_bad_rows_end_with_a_named_reason_and_their_line(
    clips: Path, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps({**GOOD, **change}) + "\n")
    good, bad = outcomes_of(CaprlSource(input=path, video_roots=(clips,)), tmp_path / "out")
    assert good.kind == "row"
    assert (bad.kind, bad.reason) != ("row", None)
    assert bad.reason == reason, bad.message
    assert bad.message is not None
    assert "rows.jsonl:2" in bad.message
    assert "\n" not in bad.message


@pytest.mark.parametrize("line", ["{", "[1, 2]", '"text"', "nul", "[" * 100_000])
def test_lines_that_are_no_object_do_not_stop_the_rest(clips: Path, tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(line + "\n" + json.dumps(GOOD) + "\n")
    bad, good = outcomes_of(CaprlSource(input=path, video_roots=(clips,)), tmp_path / "out")
    assert bad.reason == "malformed"
    assert good.kind == "row"


@pytest.mark.parametrize("name", ["a b.mp4", "50%.mp4", "no#1.mp4", 'it\'s "so".mp4', "дом 日本.mp4", "%41.mp4"])
@pytest.mark.parametrize("transport", ["video", "frames"])
def test_odd_file_names_are_taken_as_they_stand(clips: Path, tmp_path: Path, name: str, transport: Any) -> None:
    (clips / "clip.mp4").rename(clips / name)
    linked = tmp_path / "a link"
    linked.symlink_to(clips, target_is_directory=True)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**GOOD, "video": name}, ensure_ascii=False) + "\n")
    source = CaprlSource(input=path, video_roots=(linked,), transport=transport, num_frames=4)
    (row,) = rows_of(source, tmp_path / "out")
    assert row["metadata"]["video"] == name
    if transport == "video":
        assert content_of(row)[0]["video_url"] == name
    else:
        assert content_of(row)[0]["_video_source"] == name


def test_a_convention_that_cannot_serve_a_short_clip_is_a_skip(clips: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n")
    source = CaprlSource(
        input=path, video_roots=(clips,), transport="frames", num_frames=64, convention="qwen2_vl"
    )
    (outcome,) = outcomes_of(source, tmp_path / "out")
    assert (outcome.kind, outcome.reason) == ("skip", "too_short")
