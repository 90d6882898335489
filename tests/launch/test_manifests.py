# SPDX-License-Identifier: Apache-2.0
"""Every environment passes Gym's own checks, here in this process and so without an environment per server."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from nemo_gym.environment.onboarding import verify_environment
from nemo_gym.environment.validation import validate_environment
from nemo_gym.registry import EnvironmentCatalogEntry, resolve_catalog_entry
from nemo_gym.task_data import load_task_data_schema, validate_jsonl_rows

from nemo_gym_video.launch.catalogue import environment_names, load_environment
from nemo_gym_video.servers.gym_root import search_root

ROOT = search_root()
NAMES = environment_names((ROOT,))
ENVIRONMENTS_OF = {
    "video_verifier": (
        "caprl_mcqa",
        "sav_pt_tracks",
        "sav_box_tracks",
        "sav_ref_tracks",
        "clip_explorer",
        "sav_stream",
    ),
}


@pytest.fixture(autouse=True)
def gym_finds_our_trees(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As ``--search-dir`` does."""
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(ROOT))
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def entry(name: str) -> EnvironmentCatalogEntry:
    return resolve_catalog_entry(name, "environment")


def test_all_are_there() -> None:
    wanted = {"caprl_mcqa", "sav_pt_tracks", "sav_box_tracks", "sav_ref_tracks", "video_grpo"}
    assert wanted <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_gym_env_validate(name: str) -> None:
    found = entry(name)
    assert found.manifest_path is not None
    report = validate_environment(found.manifest_path, found.config_path)
    assert report.warnings == ()
    assert report.inferred_profile == report.declared_profile
    assert [dataset.rows for dataset in report.datasets] == [5]


@pytest.mark.parametrize("name", NAMES)
def test_gym_env_test(name: str) -> None:
    report = asyncio.run(verify_environment(entry(name)))
    assert {case.kind for case in report.cases} == {"full_reward", "zero_reward", "malformed", "determinism"}


@pytest.mark.parametrize("name", ["video_verifier"])
def test_example_rows_have_no_field_that_the_schema_does_not_know(name: str) -> None:
    folder = ROOT / "verifiers" / name
    schema = load_task_data_schema(folder)
    assert schema is not None
    for environment in ENVIRONMENTS_OF[name]:
        for _, file in load_environment(environment, (ROOT,)).examples:
            report = validate_jsonl_rows(name, schema, str(file), file.read_text("utf-8").splitlines())
            assert report.clean, report.summary()
