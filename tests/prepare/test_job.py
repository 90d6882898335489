# SPDX-License-Identifier: Apache-2.0
"""The job: same bytes whatever the workers, whatever stops it; totals that add up; splits; duplicates."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nemo_gym_video.errors import PreparationError
from nemo_gym_video.prepare import chunks as chunks_module
from nemo_gym_video.prepare.caprl.caprl_source import CaprlSource
from nemo_gym_video.prepare.chunks import prepare_chunk
from nemo_gym_video.prepare.finish import RowRules
from nemo_gym_video.prepare.job import JobSettings, run_job
from nemo_gym_video.prepare.merge import MergeRules, Report, split_of
from nemo_gym_video.prepare.outcome import Outcome
from nemo_gym_video.prepare.sav.sav_rows import TrackRules
from nemo_gym_video.prepare.sav.sav_source import SavSource
from nemo_gym_video.prepare.synthetic.clips import SyntheticSet

Tree = Callable[[Path], dict[str, bytes]]
COMMAND = [sys.executable, "-c", "from nemo_gym_video.cli import main; main()", "prepare"]


@pytest.fixture(scope="module")
def questions(native: SyntheticSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native questions with some rows that end as skips and errors, and a duplicate."""
    lines = native.questions.read_text().splitlines()
    bad = [
        "{",
        json.dumps({"question": "What?", "options": ["x", "y"], "answer": "A", "video": "gone.mp4"}),
        json.dumps({"question": "What?", "options": ["x", "y"], "answer": "", "video": "sav.mp4"}),
    ]
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    path.write_text("\n".join([*lines[:2], *bad, lines[0], *lines[2:]]) + "\n")
    return path


def source_of(native: SyntheticSet, questions: Path) -> CaprlSource:
    return CaprlSource(input=questions, video_roots=(native.root,), transport="frames", num_frames=6)


def run(source: CaprlSource | SavSource, output: Path, **changes: Any) -> Report:
    return run_job(source, output, replace(JobSettings(merge=MergeRules(validation_share=0.3)), **changes))


@pytest.fixture(scope="module")
def finished(
    native: SyntheticSet, questions: Path, tmp_path_factory: pytest.TempPathFactory, tree: Tree
) -> dict[str, bytes]:
    """Every file of an uninterrupted run with one worker."""
    output = tmp_path_factory.mktemp("finished") / "out"
    run(source_of(native, questions), output)
    return tree(output)


def test_totals_add_up_and_are_written(native: SyntheticSet, questions: Path, tmp_path: Path) -> None:
    report = run(source_of(native, questions), tmp_path / "out")
    totals = report.totals
    assert totals.inputs == totals.rows + totals.skips.total() + totals.errors.total()
    assert dict(totals.errors) == {"malformed": 1, "missing": 1, "bad_answer": 1}
    assert set(totals.skips) == {"duplicate_prompt"}
    counts = {
        name: len((tmp_path / "out" / f"{name}.jsonl").read_text().splitlines())
        for name in ("train", "validation", "example")
    }
    assert counts["train"] + counts["validation"] == totals.rows == sum(report.rows.values())
    assert counts["example"] == 5
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["totals"] == totals.to_json()
    assert {issue["reason"] for issue in record["issues"]} == {
        "malformed", "missing", "bad_answer", "duplicate_prompt"
    }  # fmt: skip
    assert Report.from_json(record).to_json() == record
    assert not (tmp_path / "out" / ".job").exists()
    assert not (tmp_path / "out" / ".lock").exists()


def test_two_workers_write_the_same_bytes(
    native: SyntheticSet, questions: Path, tmp_path: Path, finished: dict[str, bytes], tree: Tree
) -> None:
    run(source_of(native, questions), tmp_path / "out", workers=2)
    assert tree(tmp_path / "out") == finished


class Stopped(BaseException):
    """Stands for the end of the process."""


def test_a_stop_at_any_write_resumes_to_the_same_bytes(
    native: SyntheticSet,
    questions: Path,
    tmp_path: Path,
    finished: dict[str, bytes],
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename, steps, limit = os.replace, 0, 0

    def counted(source: Any, target: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == limit:
            raise Stopped
        rename(source, target)

    monkeypatch.setattr("nemo_gym_video.prepare.whole_files.os.replace", counted)
    run(source_of(native, questions), tmp_path / "whole")
    writes = steps
    shutil.rmtree(tmp_path / "whole")
    output = tmp_path / "out"
    for stop in sorted(random.Random(1).sample(range(1, writes + 1), 10)):
        steps, limit = 0, stop
        with pytest.raises(Stopped):
            run(source_of(native, questions), output)
        steps, limit = 0, 0
        run(source_of(native, questions), output, resume=True)
        assert tree(output) == finished, stop
        shutil.rmtree(output)


def test_finished_chunks_are_not_done_again_and_damaged_ones_are(
    native: SyntheticSet,
    questions: Path,
    tmp_path: Path,
    finished: dict[str, bytes],
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"
    worked: list[int] = []
    stop_at = 2

    def noted(task: Any, chunk: int) -> Any:
        worked.append(chunk)
        if chunk == stop_at:
            raise Stopped
        return prepare_chunk(task, chunk)

    monkeypatch.setattr(chunks_module, "prepare_chunk", noted)
    with pytest.raises(Stopped):
        run(source_of(native, questions), output)
    monkeypatch.undo()
    done = sorted((output / ".job" / "done").iterdir())
    assert len(done) == 2
    done[1].write_bytes(done[1].read_bytes()[:-40])
    stop_at = -1
    monkeypatch.setattr(chunks_module, "prepare_chunk", noted)
    worked.clear()
    run(source_of(native, questions), output, resume=True)
    assert 0 not in worked
    assert 1 in worked
    assert tree(output) == finished


def test_resuming_a_finished_job_changes_nothing(
    native: SyntheticSet, questions: Path, tmp_path: Path, finished: dict[str, bytes], tree: Tree
) -> None:
    output = tmp_path / "out"
    first = run(source_of(native, questions), output)
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    again = run(source_of(native, questions), output, resume=True)
    assert again.to_json() == first.to_json()
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()} == before
    assert tree(output) == finished


def test_another_jobs_folder_is_refused(native: SyntheticSet, questions: Path, tmp_path: Path) -> None:
    source = source_of(native, questions)
    run(source, tmp_path / "out")
    with pytest.raises(PreparationError, match="already holds a preparation"):
        run(source, tmp_path / "out")
    with pytest.raises(PreparationError, match="other settings"):
        run(replace(source, seed=9), tmp_path / "out", resume=True)
    (tmp_path / "out" / "report.json").unlink()
    (tmp_path / "out" / ".job").mkdir()
    (tmp_path / "out" / ".job" / "job.json").write_text('{"source": "sav"}')
    with pytest.raises(PreparationError, match="other settings"):
        run(source, tmp_path / "out", resume=True)


def test_two_jobs_cannot_write_to_one_folder(native: SyntheticSet, questions: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PreparationError, match="another preparation"):
            run(source_of(native, questions), tmp_path / "out")


def test_strict_stops_at_the_first_error_and_says_it(
    native: SyntheticSet, questions: Path, tmp_path: Path
) -> None:
    with pytest.raises(PreparationError, match=r"questions\.jsonl:3: not valid JSON"):
        run(source_of(native, questions), tmp_path / "out", strict=True)
    assert not (tmp_path / "out" / "report.json").exists()


def rows_in(output: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for name in ("train", "validation")
        for line in (output / f"{name}.jsonl").read_text().splitlines()
    ]


def test_limit_takes_the_first_inputs_and_shards_take_turns(native: SyntheticSet, tmp_path: Path) -> None:
    source = CaprlSource(input=native.questions, video_roots=(native.root,))
    whole = run(source, tmp_path / "whole")
    names = [row["metadata"]["input"] for row in rows_in(tmp_path / "whole")]
    assert run(source, tmp_path / "limit", limit=7).totals.inputs == 7
    sharded = []
    for part in (1, 2, 3):
        run(source, tmp_path / f"shard{part}", shard=(part, 3))
        sharded += [row["metadata"]["input"] for row in rows_in(tmp_path / f"shard{part}")]
    assert sorted(sharded) == sorted(names)
    assert len(names) == whole.totals.rows


def test_splits_go_by_content_not_by_name(native: SyntheticSet, tmp_path: Path) -> None:
    """Copies of a video under other names go where the video goes, and their rows are duplicates."""
    root = tmp_path / "sav"
    shutil.copytree(native.sav_root, root)
    for path in sorted((root / "sav_000").glob("sav_000001*")):
        shutil.copy(path, root / "sav_000" / path.name.replace("sav_000001", "other name"))
    rules = TrackRules(num_frames=10)
    source = SavSource(root=root, task="pt", rules=rules, rows_per_video=2)
    report = run(source, tmp_path / "out", merge=MergeRules(validation_share=0.5))
    assert report.totals.skips["duplicate_prompt"] == 2
    sides: dict[str, set[str]] = {}
    for name in ("train", "validation"):
        for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines():
            sides.setdefault(json.loads(line)["metadata"]["video_digest"], set()).add(name)
    assert len(sides) == 4
    assert all(len(names) == 1 for names in sides.values())


def test_the_validation_share_is_kept_on_average() -> None:
    rules = MergeRules(validation_share=0.2)
    taken = sum(split_of(f"sha256:{number}", rules) == "validation" for number in range(4000))
    assert 700 < taken < 900


def test_rows_that_a_blind_policy_answers_are_left_out_on_request(native: SyntheticSet, tmp_path: Path) -> None:
    """A clip whose object never moves: the reference position is right in every frame."""
    root = tmp_path / "sav"
    root.mkdir()
    folder = native.sav_root / "sav_000"
    shutil.copy(folder / "sav_000001.mp4", root)
    annotation = json.loads((folder / "sav_000001_manual.json").read_text())
    annotation["masklet"] = [annotation["masklet"][0]] * len(annotation["masklet"])
    (root / "sav_000001_manual.json").write_text(json.dumps(annotation))
    source = SavSource(root=root, task="pt", rules=TrackRules(num_frames=8))
    kept = run(source, tmp_path / "kept")
    assert kept.totals.rows == 1
    assert kept.blind["rows_answered_fully"] == 1
    dropped = run(source, tmp_path / "dropped", merge=MergeRules(drop_blind=True))
    assert dropped.totals.rows == 0
    assert dropped.totals.skips == {"blind": 1}


def test_absolute_paths_name_existing_files(native: SyntheticSet, tmp_path: Path) -> None:
    source = CaprlSource(input=native.questions, video_roots=(native.root,))
    run(source, tmp_path / "video", limit=3, rows=RowRules(absolute=True))
    run(
        replace(source, transport="frames", num_frames=4),
        tmp_path / "frames",
        limit=3,
        rows=RowRules(absolute=True),
    )
    for output in (tmp_path / "video", tmp_path / "frames"):
        for row in rows_in(output):
            for part in row["responses_create_params"]["input"][0]["content"]:
                url = part.get("video_url", part.get("image_url"))
                assert url is None or (Path(url).is_absolute() and Path(url).is_file())


def test_a_named_processor_gives_every_row_its_contract(native: SyntheticSet, tmp_path: Path) -> None:
    source = CaprlSource(input=native.questions, video_roots=(native.root,), transport="frames", num_frames=8)
    run(source, tmp_path / "out", limit=4, rows=RowRules(processor="nemotron_omni"))
    for row in rows_in(tmp_path / "out"):
        contract = row["media_contract"]
        assert contract["mode"] == "tagged_frames"
        assert contract["items"][0]["frames"] == 8
    small = run(source, tmp_path / "small", limit=4, rows=RowRules(processor="nemotron_omni", max_model_len=64))
    assert small.totals.errors["contract"] == 4


def test_an_unknown_processor_fails_before_any_work(native: SyntheticSet, tmp_path: Path) -> None:
    from nemo_gym_video.errors import ProcessorSettingsError

    source = CaprlSource(input=native.questions, video_roots=(native.root,))
    with pytest.raises(ProcessorSettingsError):
        run(source, tmp_path / "out", rows=RowRules(processor="no_such_processor"))


def kill_at_random(
    arguments: list[str], output: Path, *, longest: float, rng: random.Random, resume: bool
) -> bool:
    """Start the command and kill it at a random moment; says whether it was killed before its end."""
    command = [*COMMAND, *arguments, "--output", str(output), *(["--resume"] if resume else [])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=rng.uniform(0.3, longest))
        killed = False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        killed = True
    assert b"Traceback" not in errors, errors.decode()
    return killed


def end_of(arguments: list[str], output: Path) -> tuple[int, str]:
    command = [*COMMAND, *arguments, "--output", str(output), "--resume"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return ended.returncode, ended.stderr


def check_kills(arguments: list[str], tmp_path: Path, tree: Tree, finished: Path, *, kills: int) -> None:
    """Kill at moments spread over the time that a whole run takes here and now."""
    start = time.monotonic()
    code, errors = end_of(arguments, tmp_path / "timed")
    longest = time.monotonic() - start
    assert (code, (tmp_path / "timed" / "report.json").exists()) == (1, True), errors  # the input has errors
    assert tree(tmp_path / "timed") == tree(finished)
    output, rng, killed, resume = tmp_path / "killed", random.Random(kills), 0, False
    while killed < kills:
        resume = kill_at_random(arguments, output, longest=longest, rng=rng, resume=resume)
        killed += resume
        if not resume:
            # It came to its end between kills: it must be right, and the next kill needs a new job.
            assert tree(output) == tree(finished)
            shutil.rmtree(output)
    code, errors = end_of(arguments, output)
    assert code == 1, errors
    assert tree(output) == tree(finished)


@pytest.fixture(scope="module")
def one_process(native: SyntheticSet, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes with neither workers nor Ray nor a stop."""
    output = tmp_path_factory.mktemp("one_process") / "out"
    code, errors = end_of(arguments_of(native, questions), output)
    assert code == 1, errors
    return output


def arguments_of(native: SyntheticSet, questions: Path, *more: str) -> list[str]:
    return ["caprl", "--input", str(questions), "--video-root", str(native.root), "--transport", "frames",
            "--num-frames", "12", "--validation-share", "0.3", *more]  # fmt: skip


def test_killed_runs_resume_to_the_same_bytes(
    native: SyntheticSet, questions: Path, tmp_path: Path, tree: Tree, one_process: Path
) -> None:
    check_kills(arguments_of(native, questions, "--workers", "2"), tmp_path, tree, one_process, kills=3)


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--workers", "2"), ("--workers", "2", "--ray", "local")])
def test_twenty_kills(
    native: SyntheticSet, questions: Path, tmp_path: Path, tree: Tree, one_process: Path, more: tuple[str, ...]
) -> None:
    check_kills(arguments_of(native, questions, *more), tmp_path, tree, one_process, kills=20)


@pytest.mark.slow
def test_ray_writes_the_same_bytes(
    native: SyntheticSet, questions: Path, tmp_path: Path, finished: dict[str, bytes], tree: Tree
) -> None:
    run(source_of(native, questions), tmp_path / "out", workers=2, ray="local")
    assert tree(tmp_path / "out") == finished


def test_every_skip_and_error_is_in_the_issues_file(native: SyntheticSet, questions: Path, tmp_path: Path) -> None:
    report = run(source_of(native, questions), tmp_path / "out")
    issues = [json.loads(line) for line in (tmp_path / "out" / "issues.jsonl").read_text().splitlines()]
    totals = report.totals
    assert len(issues) == totals.inputs - totals.rows
    missing = next(issue for issue in issues if issue["reason"] == "missing")
    assert missing["kind"] == "error"
    assert "questions.jsonl:4" in missing["message"]


@dataclass(frozen=True)
class Broken:
    """A source whose code makes rows that the verifier would refuse."""

    name = "caprl"
    fields: str

    def settings(self) -> dict[str, Any]:
        return {"dataset": "CAPRL"}

    def check(self) -> None: ...

    def items(self) -> Iterator[dict[str, Any]]:
        yield {}

    def media_roots(self) -> tuple[Path, ...]:
        return ()

    def licence(self) -> str | None:
        return None

    def sampling(self) -> dict[str, Any]:
        return {}

    def prepare(self, item: Mapping[str, Any], media_root: Path) -> list[Outcome]:
        row = {
            "responses_create_params": {"input": []},
            "metadata": {"prompt_version": "x"},
            **json.loads(self.fields),
        }
        return [Outcome(kind="row", input_id="only", row=row, group="sha256:0")]


@pytest.mark.parametrize(
    "fields",
    [
        {"expected_answer": "C", "options": [{"A": "x"}, {"B": "y"}]},
        {"task": "pt", "objects": []},
        {"task": "pt", "objects": [{"id": 1, "reference_xy": [1, 2], "targets": [{"frame": 1, "visible": True}]}]},
    ],
)
def test_a_row_that_the_verifier_would_refuse_is_never_written(tmp_path: Path, fields: dict[str, Any]) -> None:
    report = run_job(Broken(json.dumps(fields)), tmp_path / "out", JobSettings())
    assert report.totals.rows == 0
    assert report.totals.errors == {"malformed": 1}


def test_ctrl_c_stops_with_one_line_and_resumes(
    native: SyntheticSet, questions: Path, tmp_path: Path, tree: Tree
) -> None:
    arguments = [*arguments_of(native, questions, "--workers", "2"), "--output", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob(".job/done/*.jsonl")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert b"Traceback" not in errors
    assert process.returncode in (130, 1)  # 1: it had ended already
    if process.returncode == 130:
        assert b"--resume" in errors
    assert end_of(arguments[:-2], tmp_path / "out")[0] == 1
    end_of(arguments[:-2], tmp_path / "whole")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
