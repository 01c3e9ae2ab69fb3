"""Codes of findings: all are listed, all of the list exist, and one code is one mistake in one wording."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import amp_lessons
from amp_lessons.audit import known_mistakes
from amp_lessons.audit.codes import CODES
from tests.exercises.verdicts import tables

PACKAGE = Path(amp_lessons.__file__).parent
MODULES = [
    path
    for path in sorted([*PACKAGE.glob("audit/**/*.py"), *PACKAGE.glob("exercises/**/*.py")])
    if path.name not in ("attempts.py", "codes.py") and "_template" not in path.parts
]
MAKERS = {"passed", "failed", "note", "reject", "Finding"}

# exercises word these themselves, for what they say depends on what was asked for; no other may be added
SEVERAL_WORDINGS = {
    "wrong_return_type": "which type was asked for, and how one gets it",
    "inputs_changed": "which argument it was, and how to leave it alone",
    "not_a_function": "an exercise that asks for a method says so",
}


class Made(NamedTuple):
    """A place where a finding is made: by which function, with which code."""

    module: str
    maker: str
    code: str


def made() -> Iterator[Made]:
    """Find every finding whose code stands where it is made; a choice between two stands for both."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            maker = getattr(getattr(node, "func", None), "id", "")
            if maker in MAKERS and node.args:
                for code in literals(node.args[0]):
                    yield Made(path.relative_to(PACKAGE).as_posix(), maker, code)


def literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def strings() -> set[str]:
    """List every string of the package: a code may also be picked from a table."""
    trees = [ast.parse(path.read_text("utf-8")) for path in MODULES]
    return {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_code_that_a_finding_is_made_with_is_listed():
    assert {each.code for each in made()} - set(CODES) == set()


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.exercise_id)
def test_every_code_that_an_attempt_is_known_to_get_is_listed(table):
    codes = {code for code, _, _ in table.wrong.values()}
    notes = {note for notes, _ in table.right.values() for note in notes}
    assert (codes | notes) - set(CODES) == set()


def test_every_listed_code_exists():
    assert set(CODES) - strings() == set()


def test_meanings_are_half_a_sentence_each():
    for code, meaning in CODES.items():
        assert meaning[0].islower() or meaning.startswith(("NaN", "PyTorch")), code
        assert not meaning.endswith("."), code
    assert len(set(CODES.values())) == len(CODES)


def test_a_mistake_that_several_modules_find_is_worded_in_one():
    modules = defaultdict(set)
    for each in made():
        if each.maker != "passed":  # what holds is said in each exercise's own words
            modules[each.code].add(each.module)
    several = {code: places for code, places in modules.items() if len(places) > 1}
    again = {code: sorted(places) for code, places in several.items() if code not in SEVERAL_WORDINGS}
    assert not again, f"worded twice; let both call one function (known_mistakes, common_findings): {again}"
    assert set(several) == set(SEVERAL_WORDINGS)


def test_a_known_mistake_is_called_by_its_code():
    functions = inspect.getmembers(known_mistakes, inspect.isfunction)
    own = {name for name, function in functions if function.__module__ == known_mistakes.__name__}
    assert own == {each.code for each in made() if each.module == "audit/known_mistakes.py"}
