"""What learners read uses the course's own words, those of the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from amp_lessons.course.exercises import shelf
from amp_lessons.course.lessons import shipped
from tests.test_notebooks import NUMBERS

ROOT = Path(__file__).parents[3]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")


ROWS = [line.strip().strip("|").split("|") for line in GLOSSARY.splitlines() if line.startswith("|")][2:]
# said once for accuracy, a fraction, a reduction, a subnormal number, and what stays in high precision
NOT_USED = (
    "named rightly",
    "the share of",
    "what share",
    "the way of a sum",
    "denormal numbers",
    "what stays high",
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield what learners and teachers read, with the name of where it stands."""
    package = ROOT / "amp_lessons"
    of_lessons = ("course/quizzes/*.json", "course/interview/bank/*.yaml", "../classroom/lessons/*.md")
    for path in (path for pattern in of_lessons for path in package.glob(pattern)):
        yield path.name, path.read_text("utf-8")
    for each in (*shelf.exercises(), *shelf.interview_tasks()):
        yield each.id, (package / "course/exercises" / each.id / "card.md").read_text("utf-8")
    for number in NUMBERS:
        cells = shipped.cells_in(number)
        yield number, "\n".join(shipped.source(cell) for cell in cells if cell["cell_type"] == "markdown")
    for name in ("README.md", "classroom/guide.md"):
        yield name, (ROOT / name).read_text("utf-8")


def found_in(text: str, word: str) -> bool:
    """Whether a text has a word, in any case, across the ends of lines."""
    return re.search(rf"\b{re.escape(word)}\b", " ".join(text.split()), re.IGNORECASE) is not None


@pytest.mark.parametrize("word", NOT_USED)
def test_one_thing_has_one_name(word):
    assert [name for name, text in texts() if found_in(text, word)] == []


def test_words_are_found_in_texts():
    assert found_in("At first\nThe way of\na sum, say", "the way of a sum")
    assert not found_in("the ways of a sum", "the way of a sum")


def test_terms_are_found_by_the_alphabet():
    terms = [row[0].strip().lower() for row in ROWS]
    assert terms == sorted(terms)
