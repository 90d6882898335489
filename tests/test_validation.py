# SPDX-License-Identifier: Apache-2.0
"""What a model refuses, as sentences: the words are written out here, not taken from pydantic."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field, StrictInt, StrictStr, ValidationError

from nemo_gym_video.errors import ContractError, RowError, Where
from nemo_gym_video.validation import ClosedModel, carried, path_of, problems_of, refusal, row_errors


def _even(number: int) -> int:
    if number % 2:
        raise refusal("number is odd", allowed="an even number", field="parity")
    return number


def _broken(text: str) -> str:
    raise carried(RowError("mask is broken", got=text, allowed="runs", where=Where(message=2, part=1)))


def _other(text: str) -> str:
    raise carried(ContractError("digest differs", got=text))


class Carrying(BaseModel):
    digest: Annotated[str, AfterValidator(_other)]


class Leaf(ClosedModel):
    size: StrictInt = 1
    names: Annotated[list[StrictStr], Field(min_length=1)] = Field(default_factory=lambda: ["a"])


class Tree(BaseModel):
    even: Annotated[StrictInt, AfterValidator(_even)] = 0
    mask: Annotated[StrictStr, AfterValidator(_broken)] | None = None
    leaves: tuple[Leaf, ...] = ()
    ratio: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.5


def refused(value: Any, where: Where | None = None) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Tree.model_validate(value)
    return [str(error) for error in row_errors(caught.value, where)]


@pytest.mark.parametrize(
    ("value", "sentences"),
    [
        ([], ["row does not fit; got []; allowed: an object"]),
        ({"even": 3}, ["field 'even.parity': number is odd; got 3; allowed: an even number"]),
        ({"even": "3"}, ["field 'even': even does not fit; got '3'; allowed: an integer"]),
        ({"mask": "x"}, ["message 2, part 1: mask is broken; got 'x'; allowed: runs"]),
        ({"ratio": 2}, ["field 'ratio': ratio does not fit; got 2; allowed: less than or equal to 1"]),
        ({"leaves": 3}, ["field 'leaves': leaves does not fit; got 3; allowed: a list"]),
        ({"leaves": [None]}, ["field 'leaves[0]': leaves[0] does not fit; got 'null'; allowed: an object"]),
        (
            {"leaves": [{"sise": 1}]},
            ["field 'leaves[0].sise': sise is unknown; got 'sise'; allowed: size, names"],
        ),
        (
            {"leaves": [{}, {"size": True, "names": []}], "ratio": "1"},
            [
                "field 'leaves[1].size': size does not fit; got True; allowed: an integer",
                "field 'leaves[1].names': names does not fit; got []; allowed: at least 1 item",
                "field 'ratio': ratio does not fit; got '1'; allowed: a number",
            ],
        ),
        # The list is not too short: its one entry is bad.
        (
            {"leaves": [{"names": [1]}]},
            ["field 'leaves[0].names[0]': names[0] does not fit; got 1; allowed: a string"],
        ),
    ],
)
def test_every_problem_is_one_sentence(value: Any, sentences: list[str]) -> None:
    assert refused(value) == sentences


def test_sound_values_are_read_and_null_counts_as_absent() -> None:
    tree = Tree.model_validate({"even": 2, "leaves": [{"size": None, "names": ["b"]}], "further": 1})
    assert (tree.even, tree.leaves[0].size, tree.leaves[0].names) == (2, 1, ["b"])


def test_the_place_of_the_row_stays() -> None:
    (sentence,) = refused({"even": 1.5}, Where(file="rows.jsonl", line=3))
    assert sentence.startswith("rows.jsonl:3, field 'even': even does not fit; got 1.5")


def test_a_carried_error_of_another_class_is_kept() -> None:
    with pytest.raises(ValidationError) as caught:
        Carrying.model_validate({"digest": "x"})
    (problem,) = problems_of(caught.value)
    assert isinstance(problem.cause, ContractError)
    assert (problem.sentence, problem.field) == ("digest differs", "digest")


def test_paths() -> None:
    assert path_of(("objects", 0, "id")) == "objects[0].id"
    assert path_of(("options",), "[2]") == "options[2]"
    assert path_of((), "mode") == "mode"
    assert path_of(()) == ""
