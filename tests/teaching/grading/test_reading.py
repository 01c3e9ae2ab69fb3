"""What is taken out of a notebook: the attempt, what it needs, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import json

import pytest

from amp_lessons.course.exercises import shelf
from amp_lessons.teaching.grading import reading
from amp_lessons.teaching.grading.reading import UnreadableNotebookError, cells_of, found_of
from amp_lessons.teaching.grading.submissions import submissions_in

DOUBLE = dataclasses.replace(
    shelf.find("decode_bits"),
    id="double",
    names=("double",),
    stub="def double(x):\n    raise NotImplementedError",
    other_ways=(),
)
CHECK = 'views.check("double", double)'


def found(*sources: str):
    cells = [{"cell_type": "code", "source": source, "outputs": []} for source in sources]
    return found_of(cells_of(json.dumps({"cells": cells})), DOUBLE)


def needed(source: str, *names: str) -> str:
    return "\n".join(map(ast.unparse, reading.needed(names, ast.parse(source).body)))


def test_an_attempt_brings_what_it_mentions():
    source = "import os, math\nTWO = 2\nmodel = train()\ndef helper(x): return x * TWO\n"
    source += "def f(model): return helper(math.pi)"
    taken = needed(source, "f")
    assert all(each in taken for each in ("import math", "TWO = 2", "helper"))
    assert "os" not in taken
    assert "train()" not in taken


@pytest.mark.parametrize(
    ("sources", "taken"),
    [
        (("def double(x): return 1\ndef double(x): return 2", CHECK), "return 2"),
        (("def double(x): return 2", CHECK, "def double(x): return 3"), "return 2"),
        ((DOUBLE.stub, CHECK, "def double(x): return 3"), "return 3"),
        (("def double(x): return two * x", CHECK, "two = 2"), "two = 2"),
    ],
)
def test_the_last_definition_above_the_check_counts_unless_it_is_the_stub(sources, taken):
    source = found(*sources).source
    assert taken in source
    assert source.count("def ") == 1


def test_other_cells_are_left_where_they_are():
    taken = found("from amp_lessons import views\nviews.check = print", "def double(x): return 2 * x", CHECK)
    assert "views" not in taken.source
    assert taken.state == "written"


@pytest.mark.parametrize(
    ("sources", "state"),
    [
        ((DOUBLE.stub, CHECK), "stub"),
        (("def double(x):\n    '''My words.'''\n    raise NotImplementedError  # later", CHECK), "stub"),
        ((CHECK,), "missing"),
        (("%matplotlib inline\n!ls\ndef double(x): return 2 * x", CHECK), "written"),
        ((f"def double(x) return\n{CHECK}",), "not python"),
    ],
)
def test_the_state_of_an_attempt(sources, state):
    assert found(*sources).state == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', "[" * 100_000, '{"cells": [3]}'])
def test_what_is_no_notebook_is_said(text):
    with pytest.raises(UnreadableNotebookError):
        cells_of(text)


def test_a_copy_with_other_names_is_a_copy():
    source = "\n".join(
        f"def f(a, b):\n    '''{i}'''\n    c = a + b * {i}\n    return [c for d in a]" for i in range(5)
    )
    renamed = source.replace("(a, b)", "(p, q)").replace("a + b", "p + q").replace("in a", "in p")
    assert reading.same_as_any(ast.parse(renamed).body, [source])
    assert not reading.same_as_any(ast.parse(source.replace("+", "-")).body, [source])


def test_learners_are_told_by_folders_and_by_names(tmp_path):
    for name in ("ada.ipynb", "bob_03_loss_scaling.ipynb", "eve/x.ipynb", "eve/.ipynb_checkpoints/y.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("{}")
    learners = {each.learner: len(each.notebooks) for each in submissions_in(tmp_path)}
    assert learners == {"ada": 1, "bob": 1, "eve": 1}


@pytest.mark.parametrize(
    "cells",
    [
        ("%%time\ndef double(x): return 2 * x",),
        ("files = !ls\n%matplotlib inline\ndouble?\ndef double(x): return (2 + len(files)) * x",),
        ("table = {}\nfor k in range(9):\n    table[k] = 2 * k", "def double(x): return table[x]"),
        ("table = []\ntable.extend(2 * k for k in range(9))", "def double(x): return table[x]"),
        ("def double(x): return two * x", "two = 1\ntwo += 1"),
        ("class Two: pass\ndef double(x): return Two.value * x", "Two.value = 2\nTwo.other = not_there"),
        ("import functools", "def double(x): return 2 * x", "double = functools.cache(double)"),
        ("print(1)\nplt.plot([1])\n%%bash\nls", "def double(x): return 2 * x", "double(1 / 0)"),
        ("def double(x): return 2 * x", CHECK, "def helper(x): return double(x)"),
    ],
    ids=["time", "shell", "filled", "extended", "later", "patched", "wrapped", "stray", "below"],
)
def test_what_an_honest_notebook_has_costs_nothing(cells):
    for check in ((CHECK,), ()):
        space = {}
        exec(found(*cells, *check).source, space)
        assert space["double"](3) == 6


def test_where_an_exercise_is_mentioned_and_not_defined_it_is_said():
    assert any("nothing was found that defines double" in each for each in found(CHECK).remarks)
