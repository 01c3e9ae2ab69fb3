"""Questions with numbers drawn by a seed."""

from __future__ import annotations

import math

import pytest

from amp_lessons import interview
from amp_lessons.course.interview.estimates import read_number

ESTIMATES = [question for question in interview.QUESTIONS if question.asks_for_a_number]
asked = pytest.mark.parametrize("question", ESTIMATES, ids=lambda question: question.id)


@asked
def test_each_seed_makes_a_question_of_its_own_and_the_same_each_time(question):
    drawn = [interview.estimate(question.id, seed) for seed in range(12)]
    assert len({each.question for each in drawn}) > 3
    assert question.question == drawn[0].question, "the bank's own numbers are those of one seed"
    for each in drawn:
        assert "…" not in each.question + each.answer
        assert each.value > 0
        assert math.isfinite(each.value)
    again = interview.estimate(question.id, 3)
    assert (again.question, again.value) == (drawn[3].question, drawn[3].value)


@asked
def test_a_guess_counts_within_its_tolerance(question):
    drawn = interview.estimate(question.id, 1)
    assert 0.02 <= drawn.tolerance <= 0.5
    for off, near in ((0.9, True), (-0.9, True), (1.1, False), (-1.1, False), (math.nan, False)):
        assert drawn.accepts(drawn.value * (1 + off * drawn.tolerance)) == near
    assert drawn.accepts(read_number(drawn.value_in_words, drawn.unit))


def test_only_questions_for_a_number_can_be_drawn():
    with pytest.raises(ValueError, match=r"'loss_scaling.why' asks for no number; these do: .*estimation"):
        interview.estimate("loss_scaling.why", 0)
    with pytest.raises(KeyError, match="no question is called"):
        interview.estimate("estimation.nothing", 0)


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("about 500", "", 500.0),
        ("500 tokens/s", "tokens per second", 500.0),
        ("~1,200 tokens per second", "tokens per second", 1200.0),
        ("-3.5e9", "", -3.5e9),
        ("2^-14", "", 2.0**-14),
        ("3.5 x 10^9", "", 3.5e9),
        ("70 billion", "", 70e9),
        ("5k", "rows", 5000.0),
        (".5 ms", "ms", 0.5),
        ("I would say 16 GB.", "GB", 16.0),
    ],
)
def test_a_number_is_read_out_of_an_answer(text, unit, number):
    assert read_number(text, unit) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit", "complaint"),
    [
        ("a lot", "", "is not one number"),
        ("between 4 and 5", "", "is not one number"),
        ("", "GB", "is not one number"),
        ("2 TB", "GB", "answer in GB"),
        ("0.5 s", "ms", "answer in ms"),
        ("9^9999999", "", "no number"),
    ],
)
def test_what_is_not_one_number_in_the_unit_says_what_would_be(text, unit, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_number(text, unit)
