"""A fresh lesson gives nothing away: no verdict, no diagnosis, no number that a question above asks for."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from nbformat.sign import MemorySignatureStore, NotebookNotary

from amp_lessons import clinic, quizzes, views
from amp_lessons.audit import rules
from amp_lessons.course.lessons import fresh, originals
from amp_lessons.course.lessons.shipped import begins_deeper
from tests.notebook_rules import FOLDED

LESSONS = {path.stem[:2]: path for path in sorted(originals().glob("[0-9][0-9]_*.ipynb"))}
QUIZ = re.compile(r'views\.Quiz\("([\w.]+)"\)')
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
VERDICTS = (": passed", "not passed", "✗", "✓")
in_each_lesson = pytest.mark.parametrize("lesson", LESSONS)
DIAGNOSES = [each.text for patient in clinic.patients() for each in patient.diagnoses]


def stored(lesson):
    return json.loads(LESSONS[lesson].read_text(encoding="utf-8"))


def given_to_a_learner(lesson):
    return json.loads(fresh.text_of(LESSONS[lesson]))


def shown(cells):
    """Return what cells show, each output's kind with its text; printed text has no kind."""
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        yield from {"text/": output.get("text", ""), **output.get("data", {})}.items()


def output_texts(cells):
    """Return all that cells show, pictures left out, as one text."""
    return "\n".join("".join(text) for kind, text in shown(cells) if kind.startswith("text/"))


def answers_in_sight(lesson, notebook):
    """List the numbers of right answers that ``notebook`` shows below the question, and stored one prints.

    A number that a learner is asked for is one of the right choice alone, and one that a later cell shows.
    """
    found = []
    for place, cell in enumerate(stored(lesson)["cells"]):
        for question in map(quizzes.question, QUIZ.findall("".join(cell["source"]))):
            wrong = " ".join(each.text for each in question.choices if not each.right)
            asked = numbers(question.answer.text) - numbers(question.text) - numbers(wrong)
            shown_later = numbers(output_texts(notebook["cells"][place + 1 :]))
            found += [(question.id, number) for number in asked & shown_later]
    return found


def numbers(text):
    return {each.replace(",", "") for each in NUMBER.findall(text)}


def test_what_is_looked_for_is_in_the_stored_lessons():
    everything = "\n".join(output_texts(stored(lesson)["cells"]) for lesson in LESSONS)
    assert sum(len(answers_in_sight(lesson, stored(lesson))) for lesson in LESSONS) > 10
    assert sum(each in everything for each in DIAGNOSES) > 50
    assert "not passed" in everything or "not attempted yet" in everything


@in_each_lesson
def test_a_fresh_lesson_gives_nothing_away(lesson):
    learners = given_to_a_learner(lesson)
    told = output_texts(learners["cells"])
    assert answers_in_sight(lesson, learners) == []
    assert not any(kind.startswith("image/") for kind, _ in shown(learners["cells"]))
    answers = (*VERDICTS, "not attempted yet", *DIAGNOSES, *rules.ROWS)
    assert [each for each in answers if each in told] == []
    assert numbers(told) == set()


@in_each_lesson
def test_it_is_the_stored_lesson_but_for_what_cells_show(lesson):
    learners, original = given_to_a_learner(lesson), stored(lesson)
    nbformat.validate(nbformat.from_dict(learners))
    left_out = {"outputs": None, "execution_count": None}
    head, *rest = ({**cell, **left_out} for cell in original["cells"] if cell["id"] != "install")
    learners_head, *learners_rest = ({**cell, **left_out} for cell in learners["cells"])
    assert learners_rest == [fresh.taught(cell) for cell in rest]
    assert "".join(head["source"]).startswith(learners_head["source"] + "\n\n[Open in Colab]")
    words = "\n".join("".join(cell["source"]) for cell in learners["cells"])
    assert not any(each in words for each in ("Open in Colab", "kaggle.com", '"pip"'))
    assert {cell.get("execution_count") for cell in learners["cells"]} == {None}


@in_each_lesson
def test_each_cell_that_will_show_a_view_says_how_to_get_it(lesson):
    """A cell that ends in a view has one line; which that is does not hang on what stands stored."""
    for cell in given_to_a_learner(lesson)["cells"]:
        if cell["cell_type"] == "code" and re.search(r"^views\.\w+\(", "".join(cell["source"]), re.MULTILINE):
            (line,) = cell["outputs"]
            assert re.match(r"Run this cell \(Shift\+Enter\) to [a-z]", line["text"])


@in_each_lesson
def test_a_lesson_that_was_run_in_part_is_trusted_the_next_morning(lesson):
    notebook = nbformat.from_dict(given_to_a_learner(lesson))
    assert NotebookNotary(store_factory=MemorySignatureStore).check_cells(notebook)


def test_what_stays_stored_for_readers_has_its_answers_folded():
    for lesson in LESSONS:
        for cell in stored(lesson)["cells"]:
            told = re.sub(r"<details>.*?</details>", "", output_texts([cell]), flags=re.DOTALL)
            for question in map(quizzes.question, QUIZ.findall("".join(cell["source"]))):
                assert [choice.why for choice in question.choices if choice.why in told] == []


def test_the_words_are_of_views_that_there_are():
    assert [name for name in fresh._WHAT_FOR if not hasattr(views, name)] == []


def test_the_kernel_has_nothing_to_add_to_what_a_lesson_says_of_its_language():
    from ipykernel.ipkernel import IPythonKernel

    assert given_to_a_learner("00")["metadata"]["language_info"] == IPythonKernel.language_info


def test_what_is_deeper_is_folded_in_a_fresh_lesson():
    cells = given_to_a_learner("00")["cells"]
    headings = [cell for cell in cells if begins_deeper(cell)]
    assert headings
    assert all(cell["metadata"] == {FOLDED: True} for cell in headings)


@in_each_lesson
def test_what_holds_the_lesson_to_its_words_is_not_the_learner_s_but_where_it_teaches(lesson):
    given = {cell["id"]: cell for cell in given_to_a_learner(lesson)["cells"] if cell["cell_type"] == "code"}
    for cell in stored(lesson)["cells"]:
        if cell["cell_type"] == "code" and cell["id"] in given:
            mine = "".join(given[cell["id"]]["source"])
            if "teaches" in cell["metadata"].get("tags", ()):
                assert mine == "".join(cell["source"])
                assert "assert" in mine
                continue
            assert not re.search(r"^\s*assert ", mine, re.MULTILINE), cell["id"]
            left = [line for line in "".join(cell["source"]).splitlines() if line in mine.splitlines()]
            assert list(filter(str.strip, mine.splitlines())) == list(filter(str.strip, left)), "in its order"
            compile(mine, cell["id"], "exec")


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("x = 1\nassert x == 1", "x = 1"),
        ("for x in y:\n    print(x)\n    assert (\n x\n )\nz = 3", "for x in y:\n    print(x)\nz = 3"),
        ("if x:\n    assert x\n    assert y\nprint(x)", "print(x)"),
        ("x = 1\nfor y in (1, 2):\n    assert x <= y", "x = 1"),
        ("%%time\nassert 1", "%%time\nassert 1"),
        ("def f(x):\n    assert x\n    return x", "def f(x):\n    return x"),
    ],
)
def test_assertions_are_left_out_whole(source, given):
    assert fresh.taught({"cell_type": "code", "source": source, "metadata": {}})["source"] == given
