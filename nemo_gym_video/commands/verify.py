# SPDX-License-Identifier: Apache-2.0
"""``gym-video verify``: score answers again, without any server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args

import typer

from nemo_gym_video.commands.jsonl import open_lines, parse_object
from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.answers.visible import Output
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed_row
from nemo_gym_video.tasks.boxed.options import GradingMode
from nemo_gym_video.tasks.tracking import Rules, score_tracks

BAD_LINE = "nemo_gym_video:bad_line"
"""``failure_kind`` of a line that holds no answer to score."""

Kind = Literal["boxed", "tracks"]


def verify(
    kind: Annotated[Kind, typer.Argument(help="What the answers are.")],
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to score; - is stdin.")] = "-",
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON line in, one out (always so).")] = False,
    rollouts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Score rollouts as Gym writes them instead.")
    ] = None,
    rules: Annotated[Rules, typer.Option(help="Rule set for tracks; a line's own wins.")] = "strict",
    grading_mode: Annotated[
        GradingMode, typer.Option(help="For boxed; a row's own wins.")
    ] = "strict_single_letter_boxed",
    absence_score: Annotated[
        float | None, typer.Option(min=0, max=1, help="For tracks; a row's own wins.")
    ] = None,
) -> None:
    """Score answers: lines {"row": {…}, "text": "…", "rules": "strict"}, or whole rollouts.

    Prints one result line each, in order. Exit code 1 when a line was not measurable (mask_sample).
    """
    scorer = Scorer(kind, rules=rules, grading_mode=grading_mode, absence_score=absence_score)
    source = file if rollouts is None else rollouts
    with open_lines(source) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = Where(file="stdin" if source == "-" else source, line=number)
                sys.stdout.write(json.dumps(scorer.line(line, where)) + "\n")
    sys.stdout.flush()
    print(scorer.summary(), file=sys.stderr)
    if scorer.masked:
        raise typer.Exit(1)


class Scorer:
    """Scores lines of one kind and keeps count."""

    def __init__(
        self, kind: Kind, *, rules: Rules, grading_mode: GradingMode, absence_score: float | None
    ) -> None:
        self.kind = kind
        self.rules = rules
        self.grading_mode: GradingMode = grading_mode
        self.absence_score = absence_score
        self.rewards: list[float] = []
        self.reasons: Counter[str] = Counter()
        self.masked = 0

    def line(self, line: str, where: Where) -> dict[str, Any]:
        """The result for one line; a line that cannot be read gives a result with ``mask_sample``."""
        try:
            result = self._score(parse_object(line, where), where)
        except RowError as error:
            result = {"reward": 0.0, "reason": "bad_line", "mask_sample": True, "failure_kind": BAD_LINE,
                      "failure_reason": str(error)}  # fmt: skip
        self.reasons[result["reason"]] += 1
        if result["mask_sample"]:
            self.masked += 1
        else:
            self.rewards.append(result["reward"])
        return result

    def summary(self) -> str:
        """One line for a person."""
        mean = sum(self.rewards) / len(self.rewards) if self.rewards else 0.0
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.reasons.most_common())
        return (
            f"{len(self.rewards)} measured, mean reward {mean:.4f}; {self.masked} not measurable"
            + (f"; {reasons}" if reasons else "")
        )  # fmt: skip

    def _score(self, body: dict[str, Any], where: Where) -> dict[str, Any]:
        output, row = _answer(body, where)
        if self.kind == "boxed":
            result = score_boxed_row(output, row, grading_mode=self.grading_mode).to_json()
        else:
            rules = body.get("rules", self.rules)
            if rules not in get_args(Rules):
                raise RowError("rules are unknown", got=rules, allowed=" or ".join(get_args(Rules)), where=where)
            result = score_tracks(
                output, row, rules=cast(Rules, rules), absence_score=self.absence_score
            ).to_json()
        if body.get("mask_sample") is True and not result["mask_sample"]:
            # What broke the sample when it was rolled out (its media, say) is not in the text: it stays broken.
            kind = body.get("failure_kind")
            result.update(mask_sample=True, failure_kind=kind if isinstance(kind, str) else None,
                          failure_reason="the rollout is masked already")  # fmt: skip
        return result


def _answer(body: Mapping[str, Any], where: Where) -> tuple[Output, object]:
    """What was answered and the row it answers: ``text``, ``output`` or ``response.output``, and ``row``."""
    given = [body[name] for name in ("text", "output") if body.get(name) is not None]
    response = body.get("response")
    if not given and isinstance(response, Mapping) and "output" in response:
        given = [response["output"]]
    if len(given) != 1 or not isinstance(given[0], str | list):
        raise RowError("line holds no answer", got=sorted(body), allowed='one of "text", "output", "response"',
                       where=where)  # fmt: skip
    # A rollout carries its row's fields beside the response.
    return given[0], body.get("row", body)
