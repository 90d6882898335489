# SPDX-License-Identifier: Apache-2.0
"""The module names of version 0.1 still work, say so, and mean the same objects."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from nemo_gym_video._moved import MODULES, PACKAGES, REMOVED_IN, MovedFinder

ROOT = Path(__file__).resolve().parents[2]

# What pages of version 0.1 told people to import.
DOCUMENTED = {
    "answers.boxed": "score_boxed score_boxed_row",
    "answers.visible": "visible_text",
    "baseline.process": "start_baseline",
    "episodes.clip_explorer": "ExplorerEpisode",
    "episodes.observation": "Observation turns_of",
    "episodes.requests": "TOOLS",
    "episodes.rows": "explorer_row stream_row",
    "gym.verifier": "ScoringRequest ScoringResponse",
    "refs": "MediaReader",
    "tokens.align": "align_calls",
    "tokens.counts": "count_request grid_for_count",
    "tokens.families.base": "ProcessorSettings",
    "tokens.settings": "load_settings",
    "tokens.types": "CountRequest MediaSize",
    "tracking": "answer_schema score_tracks",
    "tracking.schema": "answer_schema",
    "tracking.scoring": "score_tracks",
    "turns": "index_turns",
}


def _forget(old: str) -> None:
    for name in [name for name in sys.modules if name == old or name.startswith(f"{old}.")]:
        del sys.modules[name]


@pytest.mark.parametrize("old", sorted(MODULES))
def test_an_old_module_is_the_new_one_and_says_so(old: str) -> None:
    _forget(f"nemo_gym_video.{old}")
    with pytest.warns(DeprecationWarning, match=re.escape(f"nemo_gym_video.{old} is now")) as caught:
        found = importlib.import_module(f"nemo_gym_video.{old}")
    assert found is importlib.import_module(f"nemo_gym_video.{MODULES[old]}")
    assert found.__spec__ is not None
    assert found.__spec__.name == f"nemo_gym_video.{MODULES[old]}"
    assert REMOVED_IN in str(caught[-1].message)


@pytest.mark.parametrize("old", sorted(DOCUMENTED))
def test_documented_names_are_still_there(old: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(f"nemo_gym_video.{old}")
        missing = [name for name in DOCUMENTED[old].split() if not hasattr(module, name)]
    assert missing == []


def test_a_name_that_an_old_package_never_had_is_an_attribute_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        turns = importlib.import_module("nemo_gym_video.turns")
    with pytest.raises(AttributeError):
        _ = turns.no_such_name
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nemo_gym_video.tokens.no_such_module")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nemo_gym_video.no_such_package")


def test_the_warning_points_at_the_line_that_imports() -> None:
    code = "import nemo_gym_video\n\nfrom nemo_gym_video.turns import index_turns\n"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "<string>:3: DeprecationWarning: nemo_gym_video.turns is now nemo_gym_video.alignment" in done.stderr


def test_a_class_under_its_old_name_is_the_same_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module("nemo_gym_video.tokens.types").CountRequest
        # A module of a package whose new folder has a file of the same name: found there it would exist twice.
        again = importlib.import_module("nemo_gym_video.tokens.counts")
    assert old is importlib.import_module("nemo_gym_video.processors.regions").CountRequest
    assert again is importlib.import_module("nemo_gym_video.processors.counts")


def test_no_old_name_hides_a_module_that_exists() -> None:
    package = ROOT / "nemo_gym_video"
    hidden = [
        name
        for name in (*MODULES, *PACKAGES)
        if (package / f"{name.replace('.', '/')}.py").exists()
        or (package / name.replace(".", "/") / "__init__.py").exists()
    ]
    assert hidden == []


def test_the_finder_keeps_out_of_everything_else() -> None:
    finder = MovedFinder()
    assert finder.find_spec("json") is None
    assert finder.find_spec("turns") is None
    assert finder.find_spec("nemo_gym_video.alignment") is None
    assert finder.find_spec("nemo_gym_video.turns") is not None
    assert finder.find_spec("other.nemo_gym_video.turns") is None
