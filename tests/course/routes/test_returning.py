"""Somebody comes back: what a kernel that has run nothing yet says, brings back and explains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest
from IPython.core.interactiveshell import InteractiveShell

from amp_lessons.cli.lab import STARTUP
from amp_lessons.course import progress
from amp_lessons.course.exercises import shelf
from amp_lessons.course.routes import returning
from tests.course.keep import keep

SOLVED = """
import math
most = 65504.0
tried = list(1 / 0 for _ in [1])
def largest_safe_scale(gradients):
    return most
"""


class Morning:
    """Lesson 03 in a new kernel: what was said in words, and what a cell raised."""

    def __init__(self, monkeypatch):
        self.said, self.raised = [], []
        self.shell = InteractiveShell(user_ns={})
        self.returning = returning.Returning(self.shell, "03")
        monkeypatch.setattr(returning, "_show", lambda *said: self.said.append(said[-1]))
        monkeypatch.setattr(self.shell, "_showtraceback", lambda *found: self.raised.append(found[-1]))
        self.shell.events.register("pre_run_cell", self.returning.before)
        self.shell.set_custom_exc((NameError,), self.returning.explain)

    def run(self, source, cell="fails-run"):
        """Run a cell; return what it came to, or the lines of what it raised."""
        done = self.shell.run_cell(source, store_history=True, cell_id=cell)
        return done.result if done.success else "\n".join(self.raised[-1])


@pytest.fixture
def morning(monkeypatch):
    return Morning(monkeypatch)


def test_the_first_cell_of_a_day_alone_says_where_the_learner_stopped(morning, monkeypatch):
    keep("answer", "scaling.does_it_hurt", True)
    later = progress.utc_now() + timedelta(hours=24)
    monkeypatch.setattr(progress, "utc_now", lambda: later)
    assert morning.run("1 + 1") == 2
    morning.run("2 + 2")
    (said,) = filter(None, morning.said)
    place = "Yesterday you stopped in lesson 03, “The gradients of a real network”. Next: lesson 03"
    assert said.startswith(place)


def test_what_an_import_further_up_brings_is_there(morning):
    assert morning.run("torch.float16.itemsize") == 2
    assert morning.run("def count():\n    return [*islice(cycle([1]), 2)]\ncount()") == [1, 1]
    assert "name 'islice' is not defined" in morning.run("del islice, cycle; islice", cell="surprise")
    assert not any(morning.said)


def test_a_cell_runs_alone_that_takes_from_above_what_imports_bring(morning, monkeypatch):
    monkeypatch.setattr(returning.Returning, "here", morning.returning)
    morning.run("1")
    assert returning.runs_alone('views.Quiz("scaling.window")\nprint(torch.ones(3))')
    assert not returning.runs_alone("views.LossScaleView(model)"), "a model is made further up"
    assert not returning.runs_alone("%matplotlib inline")
    monkeypatch.setattr(returning.Returning, "here", None)
    assert not returning.runs_alone("views.Map()"), "nothing brings the import back"
    assert returning.runs_alone("from amp_lessons import views\nviews.Map()")


def test_a_solved_exercise_is_the_learners_own_again_without_what_it_tried(morning):
    keep("keep_version", "largest_safe_scale", SOLVED)
    assert morning.run("largest_safe_scale([])") == 65504.0
    assert "`largest_safe_scale` is yours that passed its check on 20" in morning.said[-1]
    report = morning.run('views.check("largest_safe_scale", largest_safe_scale)').report
    assert not report.passed
    assert report.attempted
    assert len(list(filter(None, morning.said))) == 1


def test_what_the_learner_wrote_today_is_not_replaced(morning):
    keep("keep_version", "largest_safe_scale", SOLVED)
    morning.run("def largest_safe_scale(gradients):\n    return 1.0", cell="largest-safe-scale-stub")
    assert morning.run("largest_safe_scale([])") == 1.0
    assert not any(morning.said)


def test_for_a_name_of_a_cell_further_up_one_sentence_says_what_to_run(morning):
    said = morning.run("train(1, 2)")
    assert said.startswith("`train` is made in a cell further up, under “The gradients of a real network”,")
    assert "Run All Above Selected Cell" in " ".join(said.split())
    assert "Traceback" not in said
    assert max(map(len, said.splitlines())) <= 90
    unsolved = " ".join(morning.run("largest_safe_scale([])").split())
    assert "Exercise: compute the largest safe scale" in unsolved


def test_any_other_name_keeps_its_traceback(morning):
    local = "def f():\n    x\n    x = 1\nf()"
    for source, cell in (("trian", "fails-run"), ("denoise", "surprise"), (local, "")):
        assert "Error" in morning.run(source, cell), "misspelt, made further down, and local"
        assert "further up" not in "\n".join(morning.raised[-1])
    assert "Traceback" in morning.run("import json; json.loads(train_me)")


def test_a_damaged_record_keeps_no_cell_from_running(morning, progress_home):
    progress_home.mkdir(exist_ok=True)
    progress.path().write_text("{")
    assert morning.run("largest_safe_scale = 3") is None
    assert morning.run("largest_safe_scale") == 3


@pytest.mark.parametrize("id", [each.id for each in shelf.exercises()])
def test_every_solution_can_be_brought_back(id):
    exercise = shelf.find(id)
    found = {}
    exec(compile(returning._definitions(exercise.solution_source), id, "exec"), found)
    assert set(exercise.names) <= found.keys()


def test_a_kernel_begins_with_it_and_keeps_the_learners_names_clean(tmp_path):
    asks = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(shell.user_ns)
shell.safe_execfile({str(STARTUP)!r}, shell.user_ns, raise_exceptions=True)
import sys, json
callbacks = [each.__qualname__ for each in shell.events.callbacks["pre_run_cell"]]
print(json.dumps([sorted(set(shell.user_ns) - before), callbacks, "torch" in sys.modules]))
"""
    env = {**os.environ, "IPYTHONDIR": str(tmp_path)}

    def begun(notebook):
        env["JPY_SESSION_NAME"] = notebook
        done = subprocess.run(
            [sys.executable, "-c", asks], env=env, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    left, callbacks, torch = begun("/home/my_lessons/03_loss_scaling.ipynb")
    assert left == []
    assert "Returning.before" in callbacks
    assert not torch
    assert "Returning.before" not in begun("/home/mine.ipynb")[1]
