# SPDX-License-Identifier: Apache-2.0
"""The verifier's own cases, run in this process as ``gym env test`` runs them in a venv of the server's."""

import asyncio
import runpy
from pathlib import Path

import pytest
from nemo_gym.verifier_fixture import VerifierFixtureError, exercise_verifier_fixture

APP = Path(__file__).parents[1] / "app.py"


def run_cases(cases: Path | None = None) -> int:
    """Exercise the fixture of the server beside this folder; returns the number of cases."""
    from dataclasses import replace

    fixture = runpy.run_path(str(APP))["VERIFIER_FIXTURE"]
    if cases is not None:
        fixture = replace(fixture, cases_path=cases)
    done = exercise_verifier_fixture(fixture, reward_range=(0.0, 1.0), determinism="seeded")
    return len(asyncio.run(done))


def test_cases_hold() -> None:
    assert run_cases() >= 7


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    text = (
        (APP.parent / "tests" / "verifier_cases.jsonl")
        .read_text()
        .replace('"expected_reward": 0.0', '"expected_reward": 1.0')
    )
    (tmp_path / "cases.jsonl").write_text(text)
    with pytest.raises(VerifierFixtureError):
        run_cases(tmp_path / "cases.jsonl")
