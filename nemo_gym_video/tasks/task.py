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
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym_video.errors import RowError, Where
from nemo_gym_video.tasks.answers.visible import Output, visible_text
from nemo_gym_video.tasks.observation import Observation, turns_of

if TYPE_CHECKING:
    from nemo_gym_video.tasks.episode_media import EpisodeMedia

BAD_ROW = "nemo_gym_video:bad_row"
"""``failure_kind`` of a sample whose row is malformed."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class TaskSettings(BaseModel):
    """What a server block may set of a task; a task that can be configured subclasses it as ``Settings``.

    >>> from nemo_gym_video import TaskSettings
    >>> class Limits(TaskSettings):
    ...     max_turns: int = 8
    >>> Limits(max_turns=4).max_turns
    4
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth.

    ``reward`` is what the policy gets, 0 to 1 unless the task says otherwise. ``reason`` is one groupable word and
    ``explanation`` a sentence for a person. ``parts`` are named components that sum to ``reward``; ``details`` are
    further JSON fields of the result. ``failure`` says why a sample is no measurement: it is masked then.

    >>> from nemo_gym_video import Score
    >>> score = Score(0.5, reason="half", parts={"right": 1.0, "cost": -0.5})
    >>> sum(score.parts.values()) == score.reward
    True
    """

    reward: float
    reason: str = "scored"
    parts: Mapping[str, float] = field(default_factory=dict)
    explanation: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    failure_kind: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields that a rollout gains; ``reward_components`` only where there are parts."""
        return {
            "reward": self.reward,
            "reason": self.reason,
            "mask_sample": self.failure is not None,
            "failure_kind": self.failure_kind,
            "failure_reason": self.failure,
            **self.details,
            **({"reward_components": dict(self.parts)} if self.parts else {}),
            "explanation": self.explanation or self.reason,
        }

    @classmethod
    def from_json(cls, result: Mapping[str, Any]) -> Score:
        """The score whose ``to_json`` is ``result``."""
        named = {"reward", "reason", "mask_sample", "failure_kind", "failure_reason", "reward_components"}
        failure = result.get("failure_reason") or ("not measurable" if result.get("mask_sample") else None)
        return cls(
            result["reward"],
            result["reason"],
            parts=result.get("reward_components") or {},
            explanation=result.get("explanation", ""),
            details={name: value for name, value in result.items() if name not in {*named, "explanation"}},
            failure=failure,
            failure_kind=result.get("failure_kind"),
        )


@dataclass(frozen=True)
class Answer:
    r"""What a model put out: a text, or the output items of one turn or of a whole episode.

    ``episode`` is the state that the server kept of a multi-turn episode; None where there was none.

    >>> from nemo_gym_video import Answer
    >>> Answer("<think>A or B?</think> It is \\boxed{B}.").boxed
    'B'
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

    >>> from nemo_gym_video import Answer, Episode, Observation, text_part
    >>> class Twice(Episode):
    ...     def step(self, answer):
    ...         self.state["asked"] = self.state.get("asked", 0) + 1
    ...         if self.state["asked"] == 2:
    ...             return Observation(done=True, reason="asked_twice")
    ...         return Observation(parts=(text_part("Are you sure?"),))
    >>> episode = Twice()
    >>> [episode.step(Answer("B")).done for turn in range(2)]
    [False, True]
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

    def close(self) -> None:  # noqa: B027 most episodes hold nothing
        """Free what the episode holds open; called once, however it ends."""


class Task[RowT]:
    r"""A kind of row: its model, its score, and optionally blind answers and episodes.

    A subclass names its row model as the type argument. ``name`` is what configurations and results call it, and
    ``aliases`` are other words for it on the command line. Rows are told apart by ``required``: the fields that a
    row of this task always has, by default those of the row model that have no default.

    What the metrics of a server report beside rewards: ``answer_key`` is the result field by which answers
    compare (majority@k), ``subset_key`` the row field that splits the rows, ``means`` result fields to average.
    ``blind_teaches_nothing`` says that a row which a blind answer solves is worth listing: not so for a choice
    between options, where one of the letters is always right.

    >>> from pydantic import BaseModel
    >>> from nemo_gym_video import Answer, Score, Task
    >>> class Row(BaseModel):
    ...     expected: int
    >>> class Count(Task[Row]):
    ...     def score(self, row, answer):
    ...         return Score(float(answer.boxed == str(row.expected)))
    >>> Count.name, Count().score(Row(expected=3), Answer("There are \\boxed{3}.")).reward
    ('count', 1.0)
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    Row: ClassVar[Any]
    Settings: ClassVar[type[TaskSettings]] = TaskSettings
    required: ClassVar[frozenset[str]] = frozenset()
    answer_key: ClassVar[str | None] = None
    subset_key: ClassVar[str | None] = None
    means: ClassVar[tuple[str, ...]] = ()
    blind_teaches_nothing: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the row model from the type argument, the name from the class, the fields from the row model."""
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type):
                    cls.Row = argument
        if "name" not in cls.__dict__:
            cls.name = _WORD_START.sub("_", cls.__name__).lower()
        if "required" not in cls.__dict__ and hasattr(cls, "Row"):
            cls.required = _required(cls.Row)

    def __init__(self, settings: TaskSettings | Mapping[str, Any] | None = None) -> None:
        """``settings`` is an instance of the class's ``Settings``, or its fields; None means its defaults."""
        self.settings: Any = settings if isinstance(settings, TaskSettings) else self.Settings(**(settings or {}))

    @classmethod
    def read_row(cls, raw: object, where: Where | None = None) -> RowT:
        """The row of a JSON object; fields that the row model does not name are passed over.

        Raises:
            RowError: the first problem.
        """
        row, problems = cls._checked(raw, where)
        if problems:
            raise problems[0]
        return cast("RowT", row)

    @classmethod
    def row_problems(cls, raw: object, where: Where | None = None) -> list[RowError]:
        """Everything that is wrong with a row; empty for a sound one."""
        return cls._checked(raw, where)[1]

    @classmethod
    def _checked(cls, raw: object, where: Where | None) -> tuple[RowT | None, list[RowError]]:
        """The row, or None and its problems. A task whose row is read in another way overrides this."""
        if not isinstance(raw, Mapping):
            return None, [RowError("row is not a JSON object", got=type(raw).__name__, where=where)]
        try:
            return cls.Row.model_validate(dict(raw)), []
        except ValidationError as error:
            return None, [_row_error(problem, where) for problem in error.errors(include_url=False)]

    def score(self, row: RowT, answer: Answer) -> Score:
        """What ``answer`` is worth for ``row``. Must not raise for anything that a model can say."""
        raise NotImplementedError(f"{type(self).__name__} does not say how an answer is scored")

    def score_raw(self, raw: object, answer: Answer) -> Score:
        """``score`` for a row that has not been read; a malformed one is no measurement."""
        try:
            row = self.read_row(raw)
        except RowError as error:
            return self.bad_row(error)
        return self.score(row, answer)

    def bad_row(self, error: RowError) -> Score:
        """The score of whatever was answered to a malformed row: masked."""
        sentence = f"Not a measurement: {error}."
        return Score(0.0, "bad_row", explanation=sentence, failure=str(error), failure_kind=BAD_ROW)

    def blind(self, row: RowT) -> Mapping[str, str | Answer]:
        """Answers that a policy could give without looking, by the policy's name; none unless a task says so.

        A policy is left out of the rows where it does not apply. Policies named ``always …`` are guesses of one
        fixed answer: of a data set only the best of them is reported.
        """
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


def _required(row: Any) -> frozenset[str]:
    if issubclass(row, BaseModel):
        model = row.model_fields.items()
        return frozenset(entry.alias or name for name, entry in model if entry.is_required())
    if hasattr(row, "__dataclass_fields__"):
        return frozenset(
            entry.name for entry in fields(row) if entry.default is MISSING and entry.default_factory is MISSING
        )
    return frozenset()


def _row_error(problem: Mapping[str, Any], where: Where | None) -> RowError:
    """One problem of pydantic's as a sentence with its place."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"]).lstrip(".")
    words = str(problem["msg"]).removeprefix("Value error, ")
    got = None if problem["type"] == "missing" else problem.get("input")
    where = replace(where or Where(), field=place or None)
    return RowError(words[:1].lower() + words[1:], got=got, where=where)
