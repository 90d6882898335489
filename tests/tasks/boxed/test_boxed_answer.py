# SPDX-License-Identifier: Apache-2.0
"""The boxed-letter grammar: every accepted form and its rejected twin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym_video.tasks.boxed import boxed_answer as boxed
from nemo_gym_video.tasks.boxed.boxed_answer import score_boxed, score_boxed_row
from nemo_gym_video.tasks.boxed.options import LETTERS, boxed_row

OPTIONS = [{"A": "Black"}, {"B": "White"}, {"C": "A dog"}, {"D": "Not white"}]


def read(content: str, *, options: Any = OPTIONS, mode: Any = None) -> tuple[str | None, str]:
    result = score_boxed(f"I think \\boxed{{{content}}}", options=options, expected_answer="B", grading_mode=mode)
    assert result.reward == float(result.reason == "correct")
    assert not result.mask_sample
    assert "{" not in result.explain().replace("\\boxed{", "")
    return result.letter, result.reason


ACCEPTED = [
    "B", " B ", "(B)", "[B]", "$B$", "$$B$$", "{B}", "{{B}}", r"\text{B}", r"\text{ B }", r"\textbf{B}",
    r"\textit{B}", r"\mathrm{B}", r"\mathbf{B}", r"\mbox{B}", r"{\rm B}", r"{\bf B}", r"\text{(B)}",
    r"\text{\textbf{B}}", r"$\text{B}$", "**B**", r"B\,", "B.", r"B.\,", r"\text{B}.", r"\text{B.}", r"\boxed{B}",
    "B)", "B:", "B. White", "B) White", "B: White", "B - White", "B-White", "B.White",
    r"\text{B. White}", "B. WHITE", "B.  white ", "B: the second one", "B. It is b, not c",
    "\uff22", "\U0001d401", "\u24b7", "(\uff22)", "B. B", "B: B is right", "\tB\n",
]  # fmt: skip


@pytest.mark.parametrize("content", ACCEPTED)
def test_accepted_form_is_read_as_b(content: str) -> None:
    assert read(content) == ("B", "correct")


def test_common_forms_are_what_the_grammar_reads() -> None:
    options = dict.fromkeys(LETTERS, "x")
    for form, letter in boxed._COMMON.items():
        assert boxed._read_letter(boxed.normalize_box(form), options) == (letter, None)


REJECTED = [
    ("B/C", "ambiguous"), ("A or B", "ambiguous"), ("C) or D)", "ambiguous"), ("A-D", "ambiguous"),
    ("A - D", "ambiguous"), ("B, C", "ambiguous"), ("A and B", "ambiguous"), ("A: B", "ambiguous"),
    ("BC", "ambiguous"), ("ABCD", "ambiguous"), ("B C", "ambiguous"), ("B & C", "ambiguous"),
    ("B. A cat", "ambiguous"), ("B. not C", "ambiguous"), ("B: A or C", "ambiguous"), ("B.C.", "ambiguous"),
    ("2B", "not_a_letter"), ("B1", "not_a_letter"), ("b", "not_a_letter"), ("(b)", "not_a_letter"),
    ("White", "not_a_letter"), ("Answer", "not_a_letter"), ("42", "not_a_letter"), ("B White", "not_a_letter"),
    ("\u0412", "not_a_letter"), ("\u0392", "not_a_letter"), ("\u13f4", "not_a_letter"), ("B_1", "not_a_letter"),
    ("((B))", "not_a_letter"), ("(B]", "not_a_letter"), ("(B", "not_a_letter"), ("$B", "not_a_letter"),
    (r"\frac{B}{C}", "ambiguous"), (r"\text{B} or \text{C}", "ambiguous"), ("*B*", "not_a_letter"),
    ("?", "not_a_letter"), ("-", "not_a_letter"), (r"\text B", "not_a_letter"), ("(B) or (C)", "ambiguous"),
    ("E", "letter_not_an_option"), ("(Z)", "letter_not_an_option"), ("E. coli", "letter_not_an_option"),
    ("", "empty"), ("  ", "empty"), (r"\text{}", "empty"), ("...", "empty"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), REJECTED)
def test_rejected_form_has_a_reason(content: str, reason: str) -> None:
    letter, found = read(content)
    assert found == reason
    assert letter is None or letter in "EZ"


def test_label_with_the_options_own_text_may_name_letters() -> None:
    assert read("C. A dog") == ("C", "wrong_letter")
    assert read("C. A cat")[1] == "ambiguous"
    vitamins = [{"A": "Vitamin B"}, {"B": "Vitamin C or D"}, {"C": "none"}]
    assert read("B. vitamin  C or D", options=vitamins) == ("B", "correct")
    assert read("B. Vitamin C", options=vitamins)[1] == "ambiguous"


@pytest.mark.parametrize(
    ("content", "letter"),
    [("White", "B"), ("white", "B"), (" WHITE ", "B"), (r"\text{White}", "B"), ("White.", "B"), ("Not white", "D"),
     ("a dog", "C"), ("A  dog", "C"), ("B", "B"), ("(B)", "B")],
)  # fmt: skip
def test_lenient_reads_one_options_whole_text(content: str, letter: str) -> None:
    assert read(content, mode="lenient_boxed")[0] == letter


@pytest.mark.parametrize(
    "content", ["It is white", "Whit", "Not", "Not  a dog", "White or Black", "wh ite", "dog"]
)
def test_lenient_never_takes_a_part(content: str) -> None:
    assert read(content, mode="lenient_boxed")[0] is None


def test_lenient_needs_the_text_to_be_one_options_only() -> None:
    options = [{"A": "No"}, {"B": "no "}, {"C": "Unknown"}]
    assert read("no", options=options, mode="lenient_boxed")[0] is None
    assert read("unknown", options=options, mode="lenient_boxed")[0] == "C"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"\boxed{A} no, \boxed{B}", "correct"),
        (r"\boxed{B} no, \boxed{A}", "wrong_letter"),
        (r"\boxed{B} and \boxed{", "box_unclosed"),
        (r"\boxed{B} and \boxed{\text{A}", "box_unclosed"),
        (r"\boxed{\boxed{B}}", "correct"),
        (r"\boxed{B", "box_unclosed"),
        ("B", "no_box"),
        ("The answer is B.", "no_box"),
        (r"\boxed B", "no_box"),
        (r"\BOXED{B}", "no_box"),
        ("", "empty"),
        ("\n", "empty"),
        (r"<think>\boxed{A}</think>\boxed{B}", "correct"),
        (r"<think>\boxed{B}</think>I do not know", "no_box"),
        (r"<think>\boxed{B}", "thinking_unclosed"),
        (r"\boxed{B} <think>or", "thinking_unclosed"),
        (r"\boxed{A}</think>\boxed{B}", "correct"),
        (r"\boxed{" + "B. " + "x" * 5000 + "}", "too_long"),
        (r"\boxed{" + "{}" * 5000 + "}", "too_long"),
        (r"\boxed{B}" + "}" * 5000, "correct"),
    ],
)
def test_last_box_of_the_visible_text_counts(text: str, reason: str) -> None:
    assert score_boxed(text, options=OPTIONS, expected_answer="B").reason == reason


def test_answer_over_the_limit_is_refused() -> None:
    text = "x" * 100 + r"\boxed{B}"
    assert score_boxed(text, options=OPTIONS, expected_answer="B", max_chars=109).reason == "correct"
    assert score_boxed(text, options=OPTIONS, expected_answer="B", max_chars=108).reason == "too_long"


BAD_ROWS = [
    {"options": None, "expected_answer": "B"},
    {"options": [], "expected_answer": "B"},
    {"options": [{"B": "one"}], "expected_answer": "B"},
    {"options": {"A": "x", "B": "y"}, "expected_answer": "B"},
    {"options": [{"A": "x"}, {"B": 1}], "expected_answer": "B"},
    {"options": [{"A": "x"}, {"B": None}], "expected_answer": "B"},
    {"options": [{"A": "x"}, {"A": "y"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, {"b": "y"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, {"K": "y"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, {"AB": "y"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, {"": "y"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, {"B": "y", "C": "z"}], "expected_answer": "A"},
    {"options": [{"A": "x"}, "B"], "expected_answer": "A"},
    {"options": OPTIONS, "expected_answer": "E"},
    {"options": OPTIONS, "expected_answer": "b"},
    {"options": OPTIONS, "expected_answer": ""},
    {"options": OPTIONS, "expected_answer": None},
    {"options": OPTIONS, "expected_answer": ["B"]},
    {"options": OPTIONS},
    {"options": OPTIONS, "expected_answer": "B", "grading_mode": "lenient"},
    {"options": OPTIONS, "expected_answer": "B", "grading_mode": []},
    [],
    None,
]


@pytest.mark.parametrize("row", BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_bad_row_is_no_measurement(row: Any) -> None:
    result = score_boxed_row(r"\boxed{B}", row)
    assert (result.reward, result.reason, result.mask_sample) == (0, "bad_row", True)
    assert result.failure_kind == "nemo_gym_video:bad_row"
    assert result.failure_reason in result.explain()  # type: ignore[operator]
    json.dumps(result.to_json())


def test_rows_grading_mode_wins() -> None:
    row = {"options": OPTIONS, "expected_answer": "B", "grading_mode": "strict_single_letter_boxed"}
    assert score_boxed_row(r"\boxed{White}", row, grading_mode="lenient_boxed").reward == 0
    del row["grading_mode"]
    assert score_boxed_row(r"\boxed{White}", row, grading_mode="lenient_boxed").reward == 1


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
SPICE = st.sampled_from(
    ["\\boxed{", "}", "{", "\\text{", "B", "C", "<think>", "</think>", "$", "**", ".", "\\,", " or "]
)


@settings(max_examples=300, deadline=None)
@given(text=st.lists(SPICE | ANY_TEXT, max_size=20).map("".join), mode=st.sampled_from([None, "lenient_boxed"]))
def test_no_text_raises_and_a_reward_needs_the_right_letter(text: str, mode: Any) -> None:
    result = score_boxed(text, options=OPTIONS, expected_answer="B", grading_mode=mode)
    assert not result.mask_sample
    assert result.reward == float(result.letter == "B")
    if result.letter is not None and mode is None:
        assert r"\boxed{" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*LETTERS, "k", "options"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(options=JSON, expected=JSON, mode=JSON)
def test_no_row_raises(options: Any, expected: Any, mode: Any) -> None:
    row = {"options": options, "expected_answer": expected, "grading_mode": mode}
    result = score_boxed_row(r"\boxed{B}", row)
    assert result.mask_sample == (result.reason == "bad_row")


def test_letters_beyond_the_options_are_text() -> None:
    row = boxed_row({"options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"})
    assert score_boxed_row(r"\boxed{B. C}", row).letter == "B"
