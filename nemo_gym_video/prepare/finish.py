# SPDX-License-Identifier: Apache-2.0
"""The last step of every row: media paths as asked, and a contract when a processor is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nemo_gym_video.contract import CONTRACT_FIELD, VideoSampling, build_contract
from nemo_gym_video.errors import NemoGymVideoError, PreparationError, RowError
from nemo_gym_video.media.policy import SourcePolicy
from nemo_gym_video.media.sources import MediaSources
from nemo_gym_video.messages import is_manifest_url
from nemo_gym_video.prepare.outcome import Outcome, Refusal
from nemo_gym_video.processors.presets import ProcessorSettings, load_settings
from nemo_gym_video.tasks.registry import task_of_row


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """``absolute`` writes absolute media paths; ``processor`` names settings (preset, file or checkpoint
    folder) to count placeholders with; ``max_model_len`` refuses rows whose media alone does not fit."""

    absolute: bool = False
    processor: str | None = None
    max_model_len: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The rules as JSON."""
        return asdict(self)

    def check(self) -> None:
        """Load the processor's settings now, so that a wrong name does not fail every row."""
        if self.processor is not None:
            _settings(self.processor)
        elif self.max_model_len is not None:
            raise PreparationError("a context length needs a processor", where="--max-model-len")


def _problems(row: dict[str, Any]) -> list[RowError]:
    try:
        return task_of_row(row).row_problems(row)
    except RowError as error:
        return [error]


def finish(outcome: Outcome, *, rules: RowRules, roots: Sequence[Path], sampling: dict[str, Any]) -> Outcome:
    """The outcome with its row finished; a row whose media the processor cannot take becomes an error.

    ``roots`` are the folders that relative paths resolve against, the output first; ``sampling`` says how the
    engine samples a native video (``convention``, ``num_frames``).
    """
    row = outcome.row
    if row is None:
        return outcome
    problems = _problems(row)
    if problems:
        # The verifier would refuse it, so it is no row, whatever made it.
        return Outcome.refused(outcome.input_id, Refusal("malformed", f"the row breaks a rule: {problems[0]}"))
    if rules.absolute:
        _make_absolute(row, roots)
    if rules.processor is None:
        return outcome
    try:
        contract = build_contract(
            row["responses_create_params"]["input"],
            sources=MediaSources(SourcePolicy(roots=tuple(roots))),
            settings=_settings(rules.processor),
            max_model_len=rules.max_model_len,
            sampling=VideoSampling(**sampling),
        )
    except NemoGymVideoError as error:
        if not isinstance(error, RowError):
            raise
        return Outcome.refused(outcome.input_id, Refusal("contract", str(error)))
    return replace(outcome, row={**row, CONTRACT_FIELD: contract.to_json()})


def _make_absolute(row: dict[str, Any], roots: Sequence[Path]) -> None:
    for message in row["responses_create_params"]["input"]:
        for part in message["content"]:
            for name in ("image_url", "video_url"):
                url = part.get(name)
                if isinstance(url, str) and not is_manifest_url(url) and not url.startswith("file:"):
                    part[name] = _absolute(url, roots)


def _absolute(url: str, roots: Sequence[Path]) -> str:
    for root in roots:
        path = root.absolute() / url
        if path.exists():
            return str(path)
    return url


@lru_cache(maxsize=4)
def _settings(processor: str) -> ProcessorSettings:
    return load_settings(processor)
