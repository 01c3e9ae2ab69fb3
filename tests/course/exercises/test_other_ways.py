"""Other good ways to do an exercise: read from its card, said beside the solution, and right."""

from __future__ import annotations

import ast
import shutil

import pytest

from amp_lessons import exercises
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import read
from tests.course.exercises.test_catalogue import attempt
from tools.new_exercise import EXERCISES

CATALOG = (*exercises.catalog(), *shelf.interview_tasks())
WAYS = [
    pytest.param(exercise, way, id=f"{exercise.id}-{way.title}")
    for exercise in CATALOG
    for way in exercise.other_ways
]


@pytest.mark.few(12)
@pytest.mark.parametrize(("exercise", "way"), WAYS)
def test_the_way_passes_the_check_without_a_remark(exercise, way):
    report = exercises.check(exercise.id, attempt(exercise, way.source))
    assert report.passed, report
    assert all(finding.kind == "passed" for finding in report.findings), report


def test_every_exercise_has_two_or_three_that_differ():
    for exercise in CATALOG:
        sources = {ast.dump(ast.parse(source)) for source in (exercise.solution_source, *_sources(exercise))}
        assert len(sources) == 1 + len(exercise.other_ways), exercise.id
        assert len(exercise.other_ways) in (2, 3), exercise.id
        assert len({way.title for way in exercise.other_ways}) == len(exercise.other_ways), exercise.id


def test_what_distinguishes_it_is_said_in_a_few_sentences():
    for exercise in CATALOG:
        for way in exercise.other_ways:
            assert 10 <= len(way.note.split()) <= 70, (exercise.id, way.title)
            assert max(map(len, way.source.splitlines())) <= 110, (exercise.id, way.title)


def _sources(exercise):
    return [way.source for way in exercise.other_ways]


def test_the_solution_says_them_in_every_form():
    solution = exercises.solution("time_step")
    assert solution.other_ways == read(EXERCISES / "time_step").other_ways
    shown = solution._repr_mimebundle_()
    for way in solution.other_ways:
        for text in (str(solution), shown["text/plain"], shown["text/markdown"]):
            assert way.title in text
            assert way.source in text
        assert f"<summary>Another way: {way.title}</summary>" in shown["text/html"]
    assert shown["text/plain"].index(solution.explanation) < shown["text/plain"].index("Another way")


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(EXERCISES / "_template", tmp_path / "mine")


def test_a_card_need_not_have_any(folder):
    card = (folder / "card.md").read_text()
    whole = read(folder)
    assert [way.title for way in whole.other_ways] == ["Add it to itself", "Call the operation by its name"]
    (folder / "card.md").write_text(card.split("## Other ways")[0])
    without = read(folder)
    assert without.other_ways == ()
    assert without.explanation == whole.explanation
    (folder / "card.md").write_text(card.split("## Other ways")[0].rstrip() + "\n")
    assert read(folder) == without


@pytest.mark.parametrize(
    "section",
    [
        "",
        "Some words without a heading.",
        "### A heading\n\nSentences without code.",
        "### A heading\n\n```python\nx = 1\n```",
        "### A heading\n\nSentences.\n\n```python\nx = 1\n```\n\nSentences after the code.",
        "### A heading\n\nSentences.\n\n```python\nx = 1\n",
    ],
)
def test_a_section_that_cannot_be_read_says_what_stands_there(folder, section):
    card = (folder / "card.md").read_text()
    (folder / "card.md").write_text(card.split("## Other ways")[0] + f"## Other ways\n\n{section}\n")
    with pytest.raises(ValueError, match="under ## Other ways stand a ### heading, some sentences and a"):
        read(folder)
