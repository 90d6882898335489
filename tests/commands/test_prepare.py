# SPDX-License-Identifier: Apache-2.0
"""``gym-video prepare`` as a person types it: output, exit codes, one-line errors; docs that tell the truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from nemo_gym_video.cli import build_app
from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare.outcome import REASONS
from nemo_gym_video.servers.gym_root import search_root

ROOT = Path(__file__).resolve().parents[2]
SAV = ROOT / "datasets" / "sav" / "sample"
CAPRL = ROOT / "datasets" / "caprl" / "sample"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(arguments[0]), list(arguments))


@pytest.mark.parametrize("task", ["pt", "box", "ref"])
def test_the_sav_sample_becomes_a_row(tmp_path: Path, task: str) -> None:
    output = tmp_path / "out"
    words = ["--expressions", str(SAV / "expressions.json")] if task == "ref" else []
    result = call(
        "prepare", "sav", "--root", str(SAV / "sav_train"), "--task", task, "--output", str(output),
        "--validation-share", "0", *words,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "rows" in result.output
    assert len((output / "train.jsonl").read_text().splitlines()) == 1
    assert "CC BY 4.0" in (output / "README.md").read_text()
    checked = call("validate", str(output / "train.jsonl"))
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("name", ["caprl.jsonl", "trainer.jsonl"])
def test_the_caprl_samples_become_rows(tmp_path: Path, name: str) -> None:
    output = tmp_path / "an output with spaces, # and %"
    result = call(
        "prepare", "caprl", "--input", str(CAPRL / name), "--video-root", str(CAPRL), "--output", str(output),
        "--transport", "frames", "--num-frames", "4", "--validation-share", "0",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (output / "train.jsonl").read_text().splitlines()]
    assert rows
    assert call("validate", str(output / "train.jsonl")).exit_code == 0


def test_an_error_row_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text((CAPRL / "trainer.jsonl").read_text() + '{"question": "What?", "video": "gone.mp4"}\n')
    result = call(
        "prepare", "caprl", "--input", str(rows), "--video-root", str(CAPRL), "--output", str(tmp_path / "out")
    )
    assert result.exit_code == 1
    assert "error: option_mismatch" in result.output
    assert f"rows.jsonl:{len(rows.read_text().splitlines())}" in result.output


def test_tables_fit_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "A? A. x B. y", "answer": "A", "video": "gone.mp4"}\n')
    result = call(
        "prepare", "caprl", "--input", str(rows), "--video-root", str(CAPRL), "--output", str(tmp_path / "out")
    )
    table = result.output.split("rows.jsonl")[0]
    assert max(len(line) for line in table.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sav", "--root", "gone", "--task", "pt"], "--root: folder does not exist"),
        (["sav", "--root", str(SAV), "--task", "ref"], "--expressions"),
        (["sav", "--root", str(SAV), "--task", "pt", "--shard", "3/2"], "--shard"),
        (["caprl", "--input", "gone.jsonl", "--video-root", str(CAPRL)], "--input: input file does not exist"),
        (["caprl", "--input", str(CAPRL / "caprl.jsonl"), "--video-root", "gone"], "--video-root"),
        (
            ["caprl", "--input", str(CAPRL / "caprl.jsonl"), "--video-root", str(CAPRL), "--convention", "vlm"],
            "vllm",
        ),
        (["synthetic", "--size", "33x20"], "--size"),
        (["sav", "--root", str(SAV), "--task", "pt", "--transport", "video"], "--transport"),
        (["sav", "--root", str(SAV), "--task", "pt", "--transport", "frames"], "allowed: stills"),
        (
            ["caprl", "--input", str(CAPRL / "caprl.jsonl"), "--video-root", str(CAPRL), "--transport", "stills"],
            "video, frames",
        ),
        (["synthetic", "--transport", "stills"], "--transport"),
        (
            ["sav", "--root", str(SAV), "--task", "pt", "--split", "val", "--validation-share", "0.5"],
            "--validation-share",
        ),
    ],
)
def test_settings_that_cannot_work_are_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = call("prepare", *arguments, "--output", str(tmp_path / "out"))
    assert isinstance(result.exception, PreparationError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_refused_transport_writes_nothing(tmp_path: Path) -> None:
    call("prepare", "sav", "--root", str(SAV), "--task", "pt", "--transport", "video", "--output",
         str(tmp_path / "out"))  # fmt: skip
    assert not (tmp_path / "out").exists()


def card(output: Path, *words: str) -> str:
    """The licence section of the card of one preparation, on one line."""
    assert call("prepare", *words, "--output", str(output)).exit_code == 0
    return (output / "README.md").read_text().split("## Licence")[1].split("##")[0].strip()


def write_published(path: Path, *, form: str = "caprl.jsonl") -> None:
    """The sample's questions as a parquet file."""
    rows = [json.loads(line) for line in (CAPRL / form).read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def test_a_published_set_brings_its_licence(tmp_path: Path) -> None:
    write_published(tmp_path / "capRL_video.parquet")
    words = ["caprl", "--input", str(tmp_path / "capRL_video.parquet"), "--video-root", str(CAPRL)]
    assert "LLaVA-Video-178K" in card(tmp_path / "caprl", *words)
    assert "CC BY 4.0" in card(tmp_path / "sav", "sav", "--root", str(SAV / "sav_train"), "--task", "pt")


def test_files_of_ones_own_have_no_licence_but_the_one_that_is_stated(tmp_path: Path) -> None:
    write_published(tmp_path / "mine.parquet")
    write_published(tmp_path / "capRL_video.parquet", form="trainer.jsonl")
    for number, file in enumerate(
        [CAPRL / "caprl.jsonl", tmp_path / "mine.parquet", tmp_path / "capRL_video.parquet"]
    ):
        words = ["caprl", "--input", str(file), "--video-root", str(CAPRL)]
        said = card(tmp_path / f"caprl{number}", *words)
        assert said.startswith("unknown: state it with --licence")
        assert "LLaVA" not in said
    shutil.copytree(SAV / "sav_train" / "sav_000", tmp_path / "own")
    for path in (tmp_path / "own").iterdir():
        path.rename(path.with_name(path.name.replace("sav_000001", "holiday")))
    own = ["sav", "--root", str(tmp_path / "own"), "--task", "pt"]
    assert "CC BY" not in card(tmp_path / "sav", *own)
    stated = card(tmp_path / "stated", *own, "--licence", "CC0-1.0")
    assert stated == "CC0-1.0"
    assert json.loads((tmp_path / "stated" / "report.json").read_text())["job"]["licence"] == "CC0-1.0"


def test_synthetic_prepares_all_four_environments(tmp_path: Path) -> None:
    result = call(
        "prepare", "synthetic", "--output", str(tmp_path / "out"), "--scenes", "2", "--montages", "1",
        "--size", "128x72", "--footage", "rendered", "--num-frames", "10",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for name in ("caprl_mcqa", "sav_pt_tracks", "sav_box_tracks", "sav_ref_tracks"):
        assert (tmp_path / "out" / name / "train.jsonl").read_text()
        assert "synthetic" in (tmp_path / "out" / name / "README.md").read_text()


def test_the_page_on_data_names_every_reason() -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    for name, (kind, meaning) in REASONS.items():
        assert f"| `{name}` | {kind} | {meaning} |" in page


def test_example_rows_stand_beside_their_media() -> None:
    for name in ("caprl_mcqa", "sav_pt_tracks", "sav_box_tracks", "sav_ref_tracks"):
        data = search_root() / "environments" / name / "data"
        rows = [json.loads(line) for line in (data / "example.jsonl").read_text().splitlines()]
        assert len(rows) == 5
        for row in rows:
            for part in row["responses_create_params"]["input"][0]["content"]:
                url = part.get("image_url", part.get("video_url"))
                assert url is None or (data / url).is_file()
