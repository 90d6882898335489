# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym_video.errors import Where
from nemo_gym_video.prepare.caprl.option_text import (
    answer_place,
    keeps_order,
    options_from_prose,
    structured_options,
)
from nemo_gym_video.prepare.outcome import Refusal

HERE = Where(file="rows.jsonl", line=7)


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("What colour?\nA. red\nB. blue", "What colour?", ["red", "blue"]),
        ("What colour?\nA) red\nB) blue\nC) green\n", "What colour?", ["red", "blue", "green"]),
        ("What colour? (A) red (B) blue", "What colour?", ["red", "blue"]),
        ("What? A.one B.two", "What?", ["one", "two"]),
        ("Which?\n  A: x\n  B: y\nPlease put the final answer within \\boxed{...}.", "Which?", ["x", "y"]),
        ("What does vitamin C: do? A. much B. little", "What does vitamin C: do?", ["much", "little"]),
        ("Plan B. is what?\nA. good\nB. bad", "Plan B. is what?", ["good", "bad"]),
        ("Which?\nA. vitamin C: good\nB. none", "Which?", ["vitamin C: good", "none"]),
        ("Which? A. this one B. that one\nAnswer with the letter.", "Which?", ["this one", "that one"]),
        ("What is plan A. good or bad?\nA. good\nB. bad", "What is plan A. good or bad?", ["good", "bad"]),
    ],
)
def test_one_way_to_read(text: str, question: str, options: list[str]) -> None:
    assert options_from_prose(text, where=HERE) == (question, options)


@pytest.mark.parametrize(
    "text",
    [
        "vitamin C: do?",
        "Plan B. is",
        "What is this?",
        "Which? A. only one",
        "Which? A. one B. two B. again",
        "Is plan A. better? A. yes B. no",
        "Which?\nA. one\nC. three",
        "Which?\nB. two\nA. one\nB. two",
        "Which? A. one B. two (A) three (B) four",
        "Which?\nA. same\nB. same",
        "Which?\nA.\nB. two",
        "U.S.A. or B.B.C.?",
    ],
)
def test_no_or_several_ways_to_read_are_refused_with_the_line(text: str) -> None:
    with pytest.raises(Refusal, match=r"rows\.jsonl:7") as refused:
        options_from_prose(text, where=HERE)
    assert refused.value.reason == "option_mismatch"


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (["A. Black", "B. White"], ["Black", "White"]),
        (["(A) Black", "(B) White", "(C) Red"], ["Black", "White", "Red"]),
        (["Black", "White"], ["Black", "White"]),
        ([{"A": "Black"}, {"B": "White"}], ["Black", "White"]),
        ([{"A": "Black", "B": None}, {"A": None, "B": "White"}], ["Black", "White"]),
        ({"A": "Black", "B": "White"}, ["Black", "White"]),
        (["A. Smith", "Miller"], ["A. Smith", "Miller"]),
    ],
)
def test_structured_options_lose_their_labels(value: object, options: list[str]) -> None:
    assert structured_options(value, where=HERE) == options


@pytest.mark.parametrize(
    "value",
    [
        None, "A. Black B. White", [], ["A. Black"], ["B. Black", "A. White"], ["A. x", "A. y"], ["x", "X "],
        ["x", ""], ["x", 3], [{"A": "x", "B": "y"}, {"C": "z"}], {"A": "x", "C": "y"}, [str(n) for n in range(11)],
    ],
)  # fmt: skip
def test_malformed_options_are_refused(value: object) -> None:
    with pytest.raises(Refusal) as refused:
        structured_options(value, where=HERE)
    assert refused.value.reason == "option_mismatch"


OPTIONS = ["Black", "White", "Dark grey"]


@pytest.mark.parametrize(
    ("answer", "place"),
    [("A", 0), ("B", 1), (" c ", 2), ("(B)", 1), ("B.", 1), ("B. White", 1), ("B) white", 1), ("dark  Grey", 2)],
)
def test_answers_name_an_option(answer: str, place: int) -> None:
    assert answer_place(answer, OPTIONS, where=HERE) == place


@pytest.mark.parametrize("answer", [None, "", " ", "D", "Grey", "B. Black", "AB", 1, ["A"], "A or B"])
def test_other_answers_are_bad_rows_and_never_a(answer: object) -> None:
    with pytest.raises(Refusal) as refused:
        answer_place(answer, OPTIONS, where=HERE)
    assert refused.value.reason == "bad_answer"


def test_a_letter_that_is_another_options_text_is_refused() -> None:
    with pytest.raises(Refusal):
        answer_place("A", ["B", "A"], where=HERE)


@pytest.mark.parametrize("option", ["All of the above", "Both A and B", "A or C", "none of the above"])
def test_options_that_speak_of_others_stay_in_place(option: str) -> None:
    assert keeps_order(["x", "y", option])
    assert not keeps_order(["x", "y", "a cat and a dog"])


@given(st.text(alphabet="ABC.():\n x", max_size=60))
def test_prose_never_raises_anything_but_a_refusal(text: str) -> None:
    try:
        question, options = options_from_prose(text, where=HERE)
    except Refusal:
        return
    assert len(options) >= 2
    assert question in text
    assert all(option in text for option in options)


def test_prose_is_read_in_linear_time() -> None:
    with pytest.raises(Refusal):
        options_from_prose("A. " * 200_000, where=HERE)
    with pytest.raises(Refusal):
        options_from_prose(" " * 1_000_000 + "(A", where=HERE)
