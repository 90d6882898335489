# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym_video.prepare.mcqa_prompt import BOXED_INSTRUCTION, mcqa_prompt, read_options
from nemo_gym_video.prepare.synthetic.questions import (
    COLOURS,
    SHAPES,
    QuestionKind,
    ReadQuestion,
    expression,
    question_text,
    read_expression,
    read_question,
    read_time,
    second_option,
    time_option,
)

WITH_SUBJECT: list[QuestionKind] = ["enter_time", "leave_time"]
WITHOUT: list[QuestionKind] = ["hardest_cut", "brightest_second", "darkest_second", "last_colour"]
subjects = st.tuples(st.sampled_from(sorted(COLOURS)), st.sampled_from(SHAPES))
lengths = st.integers(10, 6000).map(lambda tenths: tenths / 10)


@given(kind=st.sampled_from(WITH_SUBJECT), seconds=lengths, subject=subjects)
def test_questions_about_a_shape_read_back(kind: QuestionKind, seconds: float, subject: tuple[str, str]) -> None:
    text = question_text(kind, duration_s=seconds, subject=subject)
    assert read_question(mcqa_prompt(text, ["1.0 s", "2.0 s"])) == ReadQuestion(kind, seconds, subject)


@given(kind=st.sampled_from(WITHOUT), seconds=lengths)
def test_questions_about_the_picture_read_back(kind: QuestionKind, seconds: float) -> None:
    text = question_text(kind, duration_s=seconds)
    assert read_question("Look.\n" + mcqa_prompt(text, ["red", "blue"])) == ReadQuestion(kind, seconds, None)


@pytest.mark.parametrize(
    "text", ["", "In this video of x s, which?", "What is this?", "In this video of 3.0 s, who?"]
)
def test_other_texts_are_no_question(text: str) -> None:
    assert read_question(text) is None


@given(
    st.lists(
        st.from_regex(r"[a-z0-9 ]{1,12}", fullmatch=True).map(str.strip).filter(bool), min_size=2, max_size=10
    )
)
def test_options_read_back(options: list[str]) -> None:
    prompt = mcqa_prompt("What?", options)
    assert [text for _, text in read_options(prompt)] == options
    assert prompt.endswith(BOXED_INSTRUCTION)


def test_option_times() -> None:
    assert read_time(time_option(2.5)) == 2.5
    assert read_time(second_option(3)) == 3.0
    assert read_time("blue") is None
    assert read_time("from here to there") is None


@given(subjects)
def test_expressions_read_back(subject: tuple[str, str]) -> None:
    assert read_expression(f"Follow {expression(*subject)}.") == subject


def test_words_that_name_no_shape_are_no_expression() -> None:
    assert read_expression("the red car and the circle") is None
