# SPDX-License-Identifier: Apache-2.0
"""What the indexer answers: turns, the media each one introduced, what was left out, and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nemo_gym_video.alignment.findings import AlignedRegion, Alignment, Finding, Provenance
from nemo_gym_video.alignment.media_id import MediaRef
from nemo_gym_video.alignment.runs import Run
from nemo_gym_video.messages import MediaKind, short_url

Origin = Literal["seed_obs", "agent_input", "input", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a media item stands: ``message`` counts in the list named by ``origin``, ``part`` in its content.

    ``origin`` is ``input`` for the request's own input and ``output`` for the response's items.
    """

    origin: Origin
    message: int
    part: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One use of one asset by the model call of one turn.

    ``spans`` are half-open token ranges in the turn's ``prompt_token_ids``, one a run, and ``run_lengths`` their
    lengths. ``provenance`` is ``processor`` when the lengths are those that the contract predicts, ``engine``
    when only the tokens say so, and ``None`` when nobody says. ``spans`` stay empty when the runs of the media
    are not known. ``frames`` is the frame count of a video where the messages or the contract tell it.
    ``frame_indices`` and ``fps`` come from the contract.

    >>> from nemo_gym_video import MediaRef, Occurrence
    >>> from nemo_gym_video.alignment.occurrences import Place
    >>> place = Place(origin="input", message=0, part=0, role="user")
    >>> seen = Occurrence(kind="image", ref=MediaRef("image", ("media/cat.png",)), place=place, spans=((1, 4),))
    >>> seen.source, seen.role, seen.spans
    ('media/cat.png', 'user', ((1, 4),))
    """

    kind: MediaKind
    ref: MediaRef
    place: Place
    frames: int | None = None
    frame_indices: tuple[int, ...] | None = None
    fps: float | None = None
    spans: tuple[tuple[int, int], ...] = ()
    run_lengths: tuple[int, ...] = ()
    provenance: Provenance | None = None

    @property
    def media_id(self) -> str:
        """The asset's id; see :mod:`nemo_gym_video.alignment.media_id`. Worked out when first asked for."""
        return self.ref.media_id

    @property
    def source(self) -> str:
        """The URL or path as given (a data URL cut after its media type), for tagged frames their source."""
        return short_url(self.ref.source)

    @property
    def role(self) -> str:
        """Role of the message that brought it; ``tool`` for a tool's output."""
        return self.place.role

    @property
    def tagged(self) -> bool:
        """Whether the video travels as tagged frames, one ``input_image`` part each."""
        return self.ref.tagged


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that resembles media and was not indexed, and why."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One trainable output item.

    ``output_item`` is its index in ``response.output``. Turns of one ``segment`` extend each other's tokens;
    ``new_from`` is where the turn's prompt stops repeating tokens of its segment (0 when it starts one).
    ``carried_runs`` are prompt runs of a restarted segment that belong to media of earlier turns.
    ``generated_runs`` are media ids that the model wrote itself, as runs in ``generation_token_ids``.

    >>> from nemo_gym_video import Turn
    >>> turn = Turn(turn=1, output_item=2, segment=0, new_from=7,
    ...             prompt_token_ids=[1, 18, 18, 18, 2, 7, 8, 9], generation_token_ids=[7])
    >>> turn.prompt_token_ids[turn.new_from :]
    [9]
    """

    turn: int
    output_item: int
    segment: int
    new_from: int
    prompt_token_ids: Sequence[int] = field(repr=False)
    generation_token_ids: Sequence[int] = field(repr=False)
    media: tuple[Occurrence, ...] = ()
    carried_runs: tuple[Run, ...] = ()
    generated_runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIndex:
    """Every turn of a rollout, the media that no turn claimed, what was skipped, and all findings.

    >>> from nemo_gym_video import index_turns
    >>> index = index_turns({"responses_create_params": {"input": "Hello"}, "response": {"output": []}})
    >>> type(index).__name__, index.turns, index.unclaimed
    ('TurnIndex', (), ())
    """

    turns: tuple[Turn, ...]
    unclaimed: tuple[Occurrence, ...]
    skipped: tuple[Skipped, ...]
    findings: tuple[Finding, ...]
    media_token_ids: tuple[int, ...] | None
    regions: tuple[AlignedRegion, ...] = field(default=(), repr=False)

    @property
    def alignment(self) -> Alignment:
        """The judgement on the rollout: whether media and tokens agree, and every region with its place."""
        return Alignment(regions=self.regions, findings=self.findings)

    @property
    def trustworthy(self) -> bool:
        """Whether media and tokens agree well enough to train on."""
        return self.alignment.trustworthy
