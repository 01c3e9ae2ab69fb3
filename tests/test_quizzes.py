"""Nobody guesses an answer by its place or by its length."""

from __future__ import annotations

from collections import Counter

import pytest

from amp_lessons import quizzes
from tests.test_notebooks import NUMBERS

ENOUGH = 8  # with fewer questions chance decides
MANY = [number for number in NUMBERS if len(quizzes.of_lesson(number)) >= ENOUGH]


def right_letter(question):
    return "abcd"[question.choices.index(question.answer)]


def is_longest(question):
    """Whether the right answer has more letters than each of the others."""
    others = [len(choice.text) for choice in question.choices if not choice.right]
    return len(question.answer.text) > max(others)


def complaints(questions):
    """What gives answers away in a lesson's questions."""
    letters, longest = Counter(map(right_letter, questions)), sum(map(is_longest, questions))
    most, offered = max(letters.values()), Counter(len(each.choices) for each in questions)
    said = [f"{letter} is never right" for letter in "abc" if letter not in letters]
    said += ["d is never right"] if offered[4] >= ENOUGH and "d" not in letters else []
    if 2 * most > len(questions):
        said.append(f"{most} of {len(questions)} right answers stand at one letter")
    return said + ([f"{longest} right answers are the longest"] if 5 * longest > 2 * len(questions) else [])


@pytest.mark.parametrize("number", MANY)
def test_neither_place_nor_length_gives_an_answer_away(number):
    assert complaints(quizzes.of_lesson(number)) == []


def made(right, texts):
    choices = (quizzes.Choice(text, "why", right="abcd"[i] == right) for i, text in enumerate(texts))
    return quizzes.Question("made", "?", tuple(choices))


def test_what_gives_answers_away_is_noticed():
    fair = [made(letter, ["x", "x", "x"]) for letter in "abcabc"]
    assert complaints(fair) == []
    at_b = fair + 6 * [made("b", ["x", "x", "x"])]
    assert complaints(at_b) == ["8 of 12 right answers stand at one letter"]
    assert complaints([made(letter, ["x", "x", "x"]) for letter in "abab"]) == ["c is never right"]
    long = [made(letter, ["xx" if each == letter else "x" for each in "abc"]) for letter in "abc"]
    assert complaints(fair[:4] + long) == ["3 right answers are the longest"]
    assert complaints(4 * fair + 8 * [made("a", ["x"] * 4)]) == ["d is never right"]
