# SPDX-License-Identifier: Apache-2.0
"""Writes docs/troubleshooting.md from the codes: ``python -m nemo_gym_video.commands.troubleshooting``.

The page is made from the code, so that it can neither lack a code nor name one that is gone; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable

from nemo_gym_video.errors import ERROR_CODES

_INTRO = """\
# Troubleshooting

Every error of this package has a code that stays the same from version to version, whatever its message says:
`error.code` in Python, `failure_code` of a rollout (beside
[`failure_kind`](rollouts.md#which-samples-not-to-train-on), which groups them), `"code"` of an answer line of a
command with `--jsonl`, and in brackets at the end of what `gym-video` prints. The message itself says what was
wrong, what was got, what is allowed, and where.

This page is made by `python -m nemo_gym_video.commands.troubleshooting`; do not edit it by hand.
"""
_SECTIONS = {
    "row": "Rows and requests",
    "task": "Tasks",
    "media": "Media",
    "processor": "Processors",
    "contract": "Contracts",
    "alignment": "Tokens and media",
    "prepare": "Preparing data",
    "server": "Starting a run",
    "environment": "Environments",
    "engine": "The model's endpoint",
    "verifier": "The verifier server",
    "scoring": "Scoring",
    "http": "Servers among themselves",
    "request": "The embedded model",
    "package": "Others",
}


def troubleshooting_page() -> str:
    """The page: one table a section, each code with its meaning and what to do.

    Raises:
        KeyError: a code's first word has no section.
    """
    by_section: dict[str, list[str]] = {title: [] for title in _SECTIONS.values()}
    for code in ERROR_CODES:
        by_section[_SECTIONS[code.partition(".")[0]]].append(code)
    return _INTRO + "".join(_section(title, codes) for title, codes in by_section.items() if codes)


def _section(title: str, codes: Iterable[str]) -> str:
    rows = "".join(f"| `{code}` | {ERROR_CODES[code].meaning} | {ERROR_CODES[code].remedy} |\n" for code in codes)
    return f"\n## {title}\n\n| code | what happened | what to do |\n| --- | --- | --- |\n{rows}"


if __name__ == "__main__":
    print(troubleshooting_page(), end="")
