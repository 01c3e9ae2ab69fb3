"""The exercises as they stand in the notebooks: each in its lesson, unsolved, and solved by its solution."""

from __future__ import annotations

import os
import re

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from amp_lessons import exercises
from tests.browser.seen_cells import names_of
from tests.course.exercises.spots import NOTEBOOKS, ROOT, code_cells, imports_of, named, of_lesson

CARD = re.compile(r'^views\.ExerciseCard\("(\w+)"\)$')
CHECK = re.compile(r'^views\.check\("(\w+)", .+\)$')
CHECK_TIMEOUT_S = 60


def ids_of(cells, pattern):
    return [found[1] for cell in cells if (found := pattern.match(cell.source.strip()))]


LESSONS = [lesson for lesson in NOTEBOOKS if of_lesson(lesson)]


def test_the_lessons_on_formats_autocast_and_scaling_have_two_exercises_at_least():
    assert {"01", "02", "03"} <= set(LESSONS)
    assert min(len(of_lesson(lesson)) for lesson in ("01", "02", "03")) >= 2


@pytest.mark.parametrize(("lesson", "path"), NOTEBOOKS.items(), ids=NOTEBOOKS)
def test_a_notebook_has_the_exercises_of_its_lesson_each_once_and_in_order(lesson, path):
    cells = code_cells(path)
    belong = [exercise.id for exercise in of_lesson(lesson)]
    assert ids_of(cells, CARD) == belong
    assert ids_of(cells, CHECK) == belong


@pytest.mark.parametrize("lesson", LESSONS)
def test_card_stub_and_check_follow_each_other_and_the_stub_is_the_catalogues(lesson):
    cells = code_cells(NOTEBOOKS[lesson])
    for exercise in of_lesson(lesson):
        stub = named(cells, exercise.id, "stub")
        at = cells.index(stub)
        assert ids_of([cells[at - 1]], CARD) == ids_of([cells[at + 1]], CHECK) == [exercise.id]
        assert cells[at + 1] is named(cells, exercise.id, "check")
        assert stub.source.rstrip("\n") == exercise.stub.rstrip("\n")


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_stored_checks_say_that_nothing_is_solved(lesson):
    cells = code_cells(NOTEBOOKS[lesson])
    for exercise in of_lesson(lesson):
        assert "not attempted yet" in shown(named(cells, exercise.id, "check"))


def shown(cell):
    return "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)


@pytest.fixture(scope="module", params=LESSONS)
def tried(request, tmp_path_factory):
    """Each check's text with the stub as it is and with the solution in its place, and the tries in between.

    All run in one kernel, as somebody does who runs all cells and begins to work then. Only the imports, the
    stubs and the checks run: the rest of a lesson trains networks, and no check needs it. That the rest runs
    with the stubs as they are is nbval's business.
    """
    cells, found = code_cells(NOTEBOOKS[request.param]), of_lesson(request.param)
    stubs, checks = ([named(cells, each.id, part).source for each in found] for part in ("stub", "check"))
    solutions = [exercises.solution(each.id).source for each in found]
    plan = [imports_of(cells), *cells_of(stubs, checks), new_code_cell(TRIES), *cells_of(solutions, checks)]
    notebook = new_notebook(cells=plan)
    client = NotebookClient(notebook, kernel_name="python3", timeout=CHECK_TIMEOUT_S)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    home = str(tmp_path_factory.mktemp("home"))
    client.execute(env={**os.environ, "PYTHONPATH": path, "AMP_LESSONS_HOME": home})
    between = 1 + 2 * len(found)
    before, after = notebook.cells[1:between], notebook.cells[between + 1 :]
    unsolved, solved = (map(shown, part[1::2]) for part in (before, after))
    return list(zip(found, unsolved, solved, strict=True)), notebook.cells[between].outputs[0].text


TRIES = """from amp_lessons.course import progress
print({name: record.tries for name, record in progress.read().records.items()})"""


def cells_of(written, checks):
    return [new_code_cell(source) for pair in zip(written, checks, strict=True) for source in pair]


@pytest.mark.slow
@pytest.mark.few
def test_unsolved_every_check_says_so_and_no_try_is_booked(tried):
    texts, tries = tried
    for exercise, text, _ in texts:
        assert text.startswith(f"{exercise.title}: not attempted yet")
        assert len(text.splitlines()) <= 3, text
    assert tries == "{}\n"


@pytest.mark.slow
@pytest.mark.few
def test_with_the_solution_in_the_stubs_place_every_check_passes(tried):
    for exercise, _, solved in tried[0]:
        assert solved.startswith(f"{exercise.title}: passed"), solved


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_other_cell_depends_on_what_a_learner_writes(lesson):
    """So that a solved notebook runs from top to bottom as the unsolved one does."""
    cells = code_cells(NOTEBOOKS[lesson])
    for exercise in of_lesson(lesson):
        own = [named(cells, exercise.id, part) for part in ("stub", "check")]
        users = [cell.id for cell in cells if names_in(cell.source) & set(exercise.names)]
        assert users == [cell.id for cell in own]


def names_in(source):
    """Return the names of the notebook's own level that a cell binds or reads, in its functions too."""
    names = names_of(source)
    return names.read | names.bound


def test_names_are_those_of_the_notebooks_own_level():
    source = "def f(a):\n    return g(a).h\nclass C:\n    forward = 1\nx = y"
    assert names_in(source) == {"f", "g", "C", "x", "y"}
