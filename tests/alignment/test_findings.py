# SPDX-License-Identifier: Apache-2.0
"""One class, one table of kinds, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from nemo_gym_video.alignment.findings import FINDINGS, FORMER_KINDS, Alignment, Finding, FindingKind
from nemo_gym_video.errors import AlignmentError

ROOT = Path(__file__).parents[2]
ALIGNMENT = ROOT / "nemo_gym_video" / "alignment"


def page_rows() -> dict[str, list[str]]:
    """The rows of the page's tables, by the kind in their first column."""
    rows: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


def test_the_table_has_every_kind() -> None:
    assert set(FINDINGS) == set(get_args(FindingKind))
    assert all(rule.meaning and rule.remedy for rule in FINDINGS.values())


def test_the_page_is_the_table() -> None:
    rows = page_rows()
    assert list(rows) == [*FINDINGS, *FORMER_KINDS]
    for kind, rule in FINDINGS.items():
        meaning, masks, remedy = rows[kind]
        assert (meaning, remedy) == (rule.meaning, rule.remedy)
        assert masks.startswith("yes" if rule.masks else "no")
        assert rule.unless in masks
        assert (";" in masks) == bool(rule.unless)
    for old, new in FORMER_KINDS.items():
        assert rows[old] == [f"`{new}`"]


def test_every_kind_is_used_and_no_other() -> None:
    """Read from the source: what the code makes is what the table explains."""
    code = "".join(
        path.read_text(encoding="utf-8") for path in sorted(ALIGNMENT.glob("*.py")) if path.name != "findings.py"
    )
    named = re.findall(r'kind="(\w+)"|_finding\(\s*"(\w+)"|_whole\(share, "(\w+)"', code)
    made = {kind for names in named for kind in names if kind} - {"image", "video"}
    assert made == set(FINDINGS)


def test_one_class() -> None:
    defined = [
        path.name
        for path in (ROOT / "nemo_gym_video").rglob("*.py")
        if re.search(r"^class Finding\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]
    assert defined == ["findings.py"]


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_finding_masks_as_the_table_says_unless_told(kind: FindingKind) -> None:
    finding = Finding(kind=kind, message="m")
    assert finding.masks_sample is FINDINGS[kind].masks
    assert Alignment(findings=(finding,)).trustworthy is not FINDINGS[kind].masks
    other = Finding(kind=kind, message="m", masks_sample=not FINDINGS[kind].masks)
    assert Alignment(findings=(other,)).trustworthy is FINDINGS[kind].masks
    assert Finding.from_json(other.to_json()) == other


def test_findings_of_saved_rollouts_are_read() -> None:
    old = {"kind": "media_without_run", "turn": 1, "message": "image 'b.png' has no run in the prompt"}
    found = Finding.from_json(old)
    assert (found.kind, found.turn, found.message) == ("run_missing", 1, old["message"])
    assert found.masks_sample is True
    with pytest.raises(AlignmentError, match="unknown kind"):
        Finding.from_json(old | {"kind": "never_heard"})
    with pytest.raises(AlignmentError, match="unknown kind"):
        Finding.from_json({"message": "no kind"})
