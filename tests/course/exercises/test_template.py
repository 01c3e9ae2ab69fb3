"""An exercise made from the template is one at once: stub, solution, attempts and cells hold together."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import cloudpickle
import nbformat
import pytest

from amp_lessons import exercises
from amp_lessons._base.worker.client import Limits, pickled
from amp_lessons._base.worker.host import host
from amp_lessons.course.exercises import bed, shelf
from amp_lessons.course.exercises.exercise import Exercise
from tests.course.exercises.spots import NOTEBOOKS
from tests.course.exercises.verdicts import assert_right, assert_wrong
from tools import new_exercise


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Exercise:
    """Make an exercise beside those of the course, where nothing else finds it."""
    exercise = new_exercise.write_folder("made_in_a_test", "03", tmp_path)
    monkeypatch.setattr(exercises, "__path__", [*exercises.__path__, str(tmp_path)])
    monkeypatch.setattr(shelf, "exercises", lambda: (exercise,))
    monkeypatch.setattr(bed, "examine", examined_here)
    return exercise


def examined_here(exercise_id: str, attempt: Any, cpu_s: float, seed: int | None = None) -> dict[str, Any]:
    """Judge in this process, in which alone the exercise is to be found; the attempt is in a worker."""
    cloudpickle.register_pickle_by_value(import_module(f"{exercises.__name__}.{exercise_id}.attempts"))
    payload = {"pickle": pickled(attempt), "lines": {}}
    return bed.judged(exercise_id, host(bed.PRELOAD), payload, Limits(cpu_s), 1)


def test_it_is_called_as_it_was_asked_for(made):
    assert (made.id, made.names, made.lesson, made.place) == ("made_in_a_test", ("made_in_a_test",), "03", 1)
    assert new_exercise.PLACEHOLDER not in made.stub + made.solution_source


def test_the_next_one_of_a_lesson_takes_the_next_place(tmp_path):
    places = [new_exercise.write_folder(name, "03", tmp_path).place for name in ("one", "two", "three")]
    assert places == [1, 2, 3]
    assert new_exercise.write_folder("four", "04", tmp_path).place == 1


def test_every_attempt_of_the_template_is_judged_as_its_table_says(made):
    table = import_module(f"{exercises.__name__}.{made.id}.attempts").TABLE
    for name in table.wrong:
        assert_wrong(table, name)
    for name in table.right:
        assert_right(table, name)
    stub = table.defined(made.stub)
    assert exercises.check(made.id, stub).status == "not attempted yet"


def test_its_cells_come_after_the_last_exercise_of_the_lesson(made, tmp_path):
    path = tmp_path / "03_copy.ipynb"
    shutil.copy(NOTEBOOKS["03"], path)
    cells_before = nbformat.read(path, 4).cells
    before = [cell.id for cell in cells_before]
    checks = [i for i, cell in enumerate(cells_before) if cell.source.startswith("views.check(")]
    new_exercise.add_cells(path, made)
    after = nbformat.read(path, 4).cells
    at = checks[-1] + 1
    cells = after[at : at + 3]
    assert [cell.id for cell in cells] == [f"made-in-a-test-{part}" for part in ("card", "stub", "check")]
    assert [cell.id for cell in after if cell not in cells] == before
    assert cells[0].source == 'views.ExerciseCard("made_in_a_test")'
    assert cells[1].source == made.stub.rstrip("\n")
    assert cells[2].source == 'views.check("made_in_a_test", made_in_a_test)'


@pytest.mark.parametrize(
    ("exercise_id", "complaint"), [("3_times", "no Python name"), ("_x", "no Python name"), ("", "no Python")]
)
def test_what_is_no_name_is_refused(tmp_path, exercise_id, complaint):
    with pytest.raises(ValueError, match=complaint):
        new_exercise.write_folder(exercise_id, "03", tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    new_exercise.write_folder("mine", "03", tmp_path)
    (tmp_path / "mine" / "card.md").write_text("hours of work")
    with pytest.raises(ValueError, match="there already"):
        new_exercise.write_folder("mine", "03", tmp_path)
    assert (tmp_path / "mine" / "card.md").read_text() == "hours of work"


@pytest.mark.parametrize("asked", [["mine", "17"], ["3_times", "03"], ["loss_scaler", "03"]])
def test_a_wrong_command_says_what_is_wrong_and_changes_nothing(asked, capsys):
    before = NOTEBOOKS["03"].read_bytes()
    assert new_exercise.main(asked) == 2
    assert "make exercise ID=my_exercise LESSON=03: " in capsys.readouterr().err
    assert NOTEBOOKS["03"].read_bytes() == before
