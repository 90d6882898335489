# SPDX-License-Identifier: Apache-2.0
"""Follows the files that Gym's collection writes while it runs, and adds them up by environment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym_video.launch.inputs import InputRow


@dataclass(slots=True)
class RunTally:
    """One environment's results so far.

    ``rewards`` are those of measured rollouts; ``media_tokens`` the placeholder tokens of each rollout that knows
    them; ``seconds`` from the start of the collection to the environment's last result.
    """

    environment: str
    rows: int = 0
    rollouts: int = 0
    masked: int = 0
    failed: int = 0
    rewards: list[float] = field(default_factory=list)
    media_tokens: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """Mean over measured rollouts; None without any."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else None

    @property
    def mean_media_tokens(self) -> float | None:
        """Mean placeholder tokens a rollout; None when no rollout knows."""
        return sum(self.media_tokens) / len(self.media_tokens) if self.media_tokens else None


@dataclass(frozen=True, slots=True)
class RunProblem:
    """Why something is no measurement: the row's file and line, a sentence, and the failure's kind."""

    place: str
    reason: str
    kind: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.place}: {self.reason}"


class LineFollower:
    """Yields the complete lines that were added to a file since the last call."""

    def __init__(self, path: Path) -> None:
        """``path`` need not exist yet."""
        self._path = path
        self._position = 0

    def new_objects(self) -> Iterator[dict[str, Any]]:
        """The JSON objects of the new lines."""
        try:
            stream = self._path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self._position)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                if line.strip():
                    yield json.loads(line)


class Results:
    """The growing results of one collection."""

    def __init__(self, rows: Sequence[InputRow], environments: Mapping[str, str], output: Path) -> None:
        """``environments``: agent name to environment. ``output``: Gym's rollout file."""
        self._rows = rows
        self._environments = environments
        self._rollouts = LineFollower(output)
        self._failures = LineFollower(output.with_name(output.stem + "_failures.jsonl"))
        self._started = time.monotonic()
        self.tallies: dict[str, RunTally] = {}
        self.problems: dict[RunProblem, int] = {}
        for item in rows:
            self._tally(item.agent).rows += 1

    @property
    def done(self) -> int:
        """Rollouts that have ended, one way or another."""
        return sum(tally.rollouts + tally.failed for tally in self.tallies.values())

    def update(self) -> None:
        """Read what is new."""
        for result in self._rollouts.new_objects():
            tally = self._arrived(result)
            tally.rollouts += 1
            if result.get("mask_sample"):
                tally.masked += 1
                self._problem(result, "failure_reason")
            elif isinstance(result.get("reward"), int | float):
                tally.rewards.append(float(result["reward"]))
            if isinstance(result.get("media_tokens"), int):
                tally.media_tokens.append(result["media_tokens"])
        for failure in self._failures.new_objects():
            self._arrived(failure).failed += 1
            self._problem(failure, "_ng_failure_message")

    def _arrived(self, result: Mapping[str, Any]) -> RunTally:
        tally = self._tally(self._rows[result["_ng_task_index"]].agent)
        tally.seconds = time.monotonic() - self._started
        return tally

    def _tally(self, agent: str) -> RunTally:
        name = self._environments[agent]
        return self.tallies.setdefault(name, RunTally(name))

    def _problem(self, result: Mapping[str, Any], field_name: str) -> None:
        index = result["_ng_task_index"]
        reason = str(result.get("failure_reason") or result.get(field_name) or "no reason was given")
        body = result.get("_ng_failure_response_body")
        if body:
            reason = f"{reason} {body}"
        place = str(self._rows[index].where)
        # The servers know a row by its index only.
        known = f"row {index}"
        if reason.startswith((f"{known}:", f"{known},")):
            head, _, reason = reason.removeprefix(known).partition(": ")
            place += head
        problem = RunProblem(place, " ".join(reason.split())[:600], str(result.get("failure_kind") or "unknown"))
        self.problems[problem] = self.problems.get(problem, 0) + 1
