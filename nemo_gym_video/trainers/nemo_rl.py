# SPDX-License-Identifier: Apache-2.0
"""What a NeMo RL post-processor needs of a rollout, turn by turn, without importing NeMo RL.

NeMo RL walks the response's output items. An item with non-empty ``generation_token_ids`` is a turn. Images of the
items in between (whose role is not assistant) collect until the next turn takes them; the first turn starts with
those of ``seed_obs``, else ``agent_input``, else the request. Whatever has collected after the last turn is lost.
It takes ``input_image`` parts one by one, tagged frames too, and takes no ``input_video`` after the first prompt.

``nemo_rl_turns`` gives the same images on the same turns, and with them what NeMo RL drops: the videos, the token
spans of both, and masks. See ``docs/nemo_rl.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nemo_gym_video.alignment import Finding, MediaRef, Occurrence, Turn, index_turns
from nemo_gym_video.alignment.pixels import DecodedFrames, MediaReader
from nemo_gym_video.contract import RowContract
from nemo_gym_video.errors import Where
from nemo_gym_video.media.image import DecodedImage
from nemo_gym_video.processors.families.base import ProcessorSettings

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRlTurn:
    """One turn as two messages of a NeMo RL message log: new prompt tokens, then the generated ones.

    ``media`` are the images and videos in prompt order. ``spans[i]`` are the runs of ``media[i]`` as half-open
    ranges in ``new_token_ids``; empty where the runs are not known (see ``findings``). ``findings`` are those of
    this turn.
    """

    turn: int
    new_token_ids: Sequence[int] = field(repr=False)
    generation_token_ids: Sequence[int] = field(repr=False)
    media: tuple[Occurrence, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    generated_spans: tuple[tuple[int, int], ...]
    findings: tuple[Finding, ...]

    @property
    def image_refs(self) -> tuple[MediaRef, ...]:
        """The references that NeMo RL bins to this turn: every ``input_image`` part, tagged frames one by one."""
        return tuple(
            MediaRef("image", (url,))
            for one in self.media
            if one.kind == "image" or one.tagged
            for url in one.ref.urls
        )

    @property
    def videos(self) -> tuple[Occurrence, ...]:
        """Videos of the turn: native ones, manifests, and runs of tagged frames."""
        return tuple(one for one in self.media if one.kind == "video")

    @property
    def feature_mask(self) -> BoolArray:
        """bool [new tokens + generated tokens]: where features of this turn's media go.

        False on media ids that the model wrote itself: they are text to the trainer.
        """
        mask = np.zeros(len(self.new_token_ids) + len(self.generation_token_ids), dtype=bool)
        for own in self.spans:
            for start, end in own:
                mask[start:end] = True
        return mask

    @property
    def loss_mask(self) -> BoolArray:
        """bool [generated tokens]: True where to train; False on media ids that the model wrote itself."""
        mask = np.ones(len(self.generation_token_ids), dtype=bool)
        for start, end in self.generated_spans:
            mask[start:end] = False
        return mask

    def decode_images(self, reader: MediaReader) -> list[DecodedImage]:
        """Pixels of ``image_refs``. Raises ``MediaSourceError`` and ``MediaDecodeError``."""
        return [reader.handle(ref).image() for ref in self.image_refs]

    def decode_videos(self, reader: MediaReader) -> list[DecodedFrames]:
        """Frames of ``videos``: those sent one by one, or those of the contract. Raises as ``decode_images``."""
        return [reader.handle(one).frames() for one in self.videos]


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoRlRollout:
    """All turns of a rollout. ``contiguous``: every prompt extends the tokens before it, as NeMo RL demands.

    ``unclaimed`` are media after the last turn. ``findings`` are those of no single turn.
    """

    turns: tuple[NemoRlTurn, ...]
    contiguous: bool
    unclaimed: tuple[Occurrence, ...]
    findings: tuple[Finding, ...]

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """The findings of every turn, then those of no single turn."""
        return (*(finding for turn in self.turns for finding in turn.findings), *self.findings)

    @property
    def trustworthy(self) -> bool:
        """Whether media and tokens agree well enough to train on; False where the agent sets ``mask_sample``."""
        return not any(finding.masks_sample for finding in self.all_findings)


def nemo_rl_turns(
    rollout: Mapping[str, Any],
    *,
    media_token_ids: Collection[int] | None = None,
    contract: RowContract | Mapping[str, Any] | None = None,
    processor: ProcessorSettings | str | None = None,
    where: Where | None = None,
) -> NemoRlRollout:
    """Index a rollout for NeMo RL. Arguments and errors are those of ``index_turns``; opens nothing.

    >>> from nemo_gym_video import nemo_rl_turns
    >>> rollout = {
    ...     "responses_create_params": {
    ...         "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "media/cat.png"}]}]
    ...     },
    ...     "response": {
    ...         "output": [
    ...             {"type": "message", "role": "assistant", "content": [],
    ...              "prompt_token_ids": [1, 18, 18, 2], "generation_token_ids": [7]}
    ...         ]
    ...     },
    ... }
    >>> (turn,) = nemo_rl_turns(rollout, media_token_ids=[18]).turns
    >>> turn.feature_mask.tolist()
    [False, True, True, False, False]
    """
    index = index_turns(
        rollout, media_token_ids=media_token_ids, contract=contract, processor=processor, where=where
    )
    return NemoRlRollout(
        turns=tuple(
            _turn(turn, tuple(finding for finding in index.findings if finding.turn == turn.turn))
            for turn in index.turns
        ),
        contiguous=all(turn.segment == 0 for turn in index.turns),
        unclaimed=index.unclaimed,
        findings=tuple(finding for finding in index.findings if finding.turn is None),
    )


def _turn(turn: Turn, findings: tuple[Finding, ...]) -> NemoRlTurn:
    first = turn.new_from
    return NemoRlTurn(
        turn=turn.turn,
        new_token_ids=turn.prompt_token_ids[first:],
        generation_token_ids=turn.generation_token_ids,
        media=turn.media,
        spans=tuple(tuple((start - first, end - first) for start, end in one.spans) for one in turn.media),
        generated_spans=tuple((run.start, run.end) for run in turn.generated_runs),
        findings=findings,
    )
