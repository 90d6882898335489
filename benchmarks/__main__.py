# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks [NAME…] [--write]``: run the comparisons, print ratios, write the docs page."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import Comparison

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def _seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _rows(results: list[Comparison]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for result in results:
        claim = "" if result.claim is None else f"≥ {result.claim:g}"
        rows.append(
            (
                result.name,
                f"{result.ours}: {_seconds(result.ours_seconds)}",
                f"{result.reference}: {_seconds(result.reference_seconds)}",
                f"{result.ratio:.3g}",
                claim,
            )
        )
    return rows


def _write_page(results: list[Comparison]) -> None:
    head = (
        "# Benchmarks\n\n"
        "Made by `make bench ARGS=--write`. Each line compares two things timed in turn in one run (medians);\n"
        "only the ratio travels between machines.\n\n"
        f"This run: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.\n\n"
        "| comparison | ours | reference | times faster | claimed |\n| --- | --- | --- | ---: | ---: |\n"
    )
    body = "".join("| " + " | ".join(row) + " |\n" for row in _rows(results))
    PAGE.write_text(head + body, encoding="utf-8")


def main() -> int:
    """Run every ``bench_*.py`` (or those named); exit 1 when a claimed ratio was not reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser.add_argument("names", nargs="*", choices=[*names, []], help=f"of {', '.join(names)}; default all")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(HERE.parent)}")
    arguments = parser.parse_args()
    results: list[Comparison] = []
    for name in arguments.names or names:
        print(f"running {name} …", flush=True)
        results += importlib.import_module(f"benchmarks.bench_{name}").run()
    table = Table("comparison", "ours", "reference", "times faster", "claimed")
    for row, result in zip(_rows(results), results, strict=True):
        table.add_row(*row, style=None if result.holds else "bold red")
    Console().print(table)
    if arguments.write:
        _write_page(results)
    return int(not all(result.holds for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
