# SPDX-License-Identifier: Apache-2.0
"""A task: what a row asks, how an answer is scored, and what an environment says between turns.

One class in one file is everything that an environment needs::

    class Row(BaseModel):
        expected: int

    class Count(Task[Row]):
        def score(self, row, answer):
            return Score(float(answer.boxed == str(row.expected)))
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict

from nemo_gym_video.tasks.answers.visible import Output, visible_text
from nemo_gym_video.tasks.observation import Observation, turns_of

if TYPE_CHECKING:
    from nemo_gym_video.tasks.episode_media import EpisodeMedia

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class TaskSettings(BaseModel):
    """What a server block may set of a task; a task that can be configured subclasses it as ``Settings``."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth.

    ``reward`` is what the policy gets, 0 to 1 unless the task says otherwise. ``reason`` is one groupable word and
    ``explanation`` a sentence for a person. ``parts`` are named components that sum to ``reward``; ``details`` are
    further JSON fields of the result. ``failure`` says why a sample is no measurement: it is masked then.
    """

    reward: float
    reason: str = "scored"
    parts: Mapping[str, float] = field(default_factory=dict)
    explanation: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    failure_kind: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a model put out: a text, or the output items of one turn or of a whole episode.

    ``episode`` is the state that the server kept of a multi-turn episode; None where there was none.
    """

    output: Output
    episode: Mapping[str, Any] | None = None

    @cached_property
    def turns(self) -> tuple[Answer, ...]:
        """One answer for each model turn, in order; at least one."""
        if isinstance(self.output, str):
            return (self,)
        return tuple(Answer(turn) for turn in turns_of(self.output))

    @cached_property
    def text(self) -> str:
        """What the model said in its last turn after it had thought; empty where it said nothing that counts."""
        return visible_text(self.turns[-1].output).text

    @cached_property
    def boxed(self) -> str | None:
        r"""Content of the last ``\boxed{…}`` of ``text``, braces balanced; None where there is none."""
        return last_boxed(self.text)

    @property
    def items(self) -> Sequence[Any]:
        """The last turn's output items; empty for a bare text."""
        output = self.turns[-1].output
        return () if isinstance(output, str) else output


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{…}`` in ``text`` whose braces close; linear in the text's length."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for place in range(begin, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[begin:place].strip()
    return None


class Episode(ABC):
    """What the environment does in one rollout of several turns.

    ``state`` is everything that changes while the episode runs: a small JSON value (what was asked, what was
    shown). An episode that is made anew for the same row and given the state goes on where the other stopped.
    """

    def __init__(self) -> None:
        """Begin with an empty state."""
        self.state: dict[str, Any] = {}

    def begin(self) -> Observation:
        """What the environment shows before the model's first turn; nothing unless a task says otherwise."""
        return Observation()

    @abstractmethod
    def step(self, answer: Answer) -> Observation:
        """Answer one model turn; an observation that is ``done`` ends the episode."""


class Task[RowT: BaseModel]:
    """A kind of row: its model, its score, and optionally blind answers and episodes.

    A subclass names its row model as the type argument. ``name`` is what configurations and results call it.
    """

    name: ClassVar[str] = ""
    Row: ClassVar[type[BaseModel]]
    Settings: ClassVar[type[TaskSettings]] = TaskSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the row model from the type argument, and the name from the class when none is given."""
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, BaseModel):
                    cls.Row = argument
        if "name" not in cls.__dict__:
            cls.name = _WORD_START.sub("_", cls.__name__).lower()

    def __init__(self, settings: TaskSettings | None = None) -> None:
        """``settings`` is an instance of the class's ``Settings``; None means its defaults."""
        self.settings = settings if settings is not None else self.Settings()

    def score(self, row: RowT, answer: Answer) -> Score:
        """What ``answer`` is worth for ``row``. Must not raise for anything that a model can say."""
        raise NotImplementedError(f"{type(self).__name__} does not say how an answer is scored")

    def blind(self, row: RowT) -> Mapping[str, str]:
        """Answers that a policy could give without looking, by the policy's name; none unless a task says so."""
        del row
        return {}

    def episode(self, row: RowT, media: EpisodeMedia) -> Episode | None:
        """The environment's side of a rollout of several turns; None for a task of one turn."""
        del row, media
        return None

    @classmethod
    def multi_turn(cls) -> bool:
        """Whether the task has episodes."""
        return cls.episode is not Task.episode
