"""The mistakes' rows: every code has one row and one wording, and the rows say what is so."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import amp_lessons
from amp_lessons.audit.rules import ROWS
from tests.course.exercises.verdicts import tables

PACKAGE = Path(amp_lessons.__file__).parent
MODULES = [
    path
    for path in sorted([*PACKAGE.glob("audit/**/*.py"), *PACKAGE.glob("course/exercises/**/*.py")])
    if path.name != "attempts.py" and "_template" not in path.parts
]
ROOM = PACKAGE / "audit/rules"
MAKERS = {"passed", "failed", "note", "reject", "Finding"}
ENTERED = {"mistake", "remark"}  # those that have a row

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


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


@cache
def made() -> tuple[Made, ...]:
    """Find every finding whose code stands where it is made; a choice between two stands for both.

    Those that have a row are functions, called as their code.
    """
    return tuple(_made())


def _made() -> Iterator[Made]:
    for path in MODULES:
        module = path.relative_to(PACKAGE).as_posix()
        for node in nodes(path):
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if getattr(getattr(decorator, "func", None), "id", "") in ENTERED:
                    yield Made(module, "row", node.name)
            maker = ast.unparse(node.func).removeprefix("bed.") if isinstance(node, ast.Call) else ""
            if maker in MAKERS and node.args:
                for code in literals(node.args[0]):
                    yield Made(module, maker, code)


def literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


@cache
def strings() -> set[str]:
    """List every string outside of the rules: a code may also be picked from a table."""
    constants = [each for path in MODULES if path.parent != ROOM for each in nodes(path)]
    return {text for each in constants if isinstance(each, ast.Constant) for text in literals(each)}


def test_every_code_that_the_audit_makes_a_finding_with_is_listed():
    by_audit = {each.code for each in made() if each.module.startswith("audit/")}
    assert by_audit - set(ROWS) == {"not_attempted"}  # of a form of findings that exercises alone use


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.exercise_id)
def test_every_code_that_an_attempt_is_known_to_get_is_one_that_a_check_makes(table):
    codes = {code for code, _, _ in table.wrong.values()}
    notes = {note for notes, _ in table.right.values() for note in notes}
    assert (codes | notes) - set(ROWS) - strings() == set()


def test_meanings_are_half_a_sentence_each():
    for row in ROWS.values():
        assert row.means[0].islower() or row.means.startswith(("NaN", "PyTorch")), row
        assert not row.means.endswith("."), row
    assert len({row.means for row in ROWS.values()}) == len(ROWS)


def test_a_mistake_that_several_modules_find_is_worded_in_one():
    modules = defaultdict(set)
    for each in made():
        own_words = each.maker == "passed"  # what holds is said in each exercise's
        if not own_words:
            modules[each.code].add(each.module)
    several = {code: places for code, places in modules.items() if len(places) > 1}
    again = {code: sorted(places) for code, places in several.items() if code not in SEVERAL_WORDINGS}
    assert not again, f"worded twice; let both call one function (audit/rules, common_findings): {again}"
    assert set(several) == set(SEVERAL_WORDINGS)


def called(room: str) -> set[str]:
    """List what modules of a room call, mistakes' words among it, by whatever way they import them."""
    inside = [each for path in MODULES if path.is_relative_to(PACKAGE / room) for each in nodes(path)]
    return {getattr(each, "attr", getattr(each, "id", "")) for each in inside}


def test_a_row_says_who_can_see_a_mistake_as_it_is():
    worded = {each.code for each in made() if each.module.startswith("audit/rules/")}
    # some a check has from the audit, which it asks where it refuses
    of_attempts = {code for table in tables() for code, *_ in table.wrong.values()}
    by_audit, by_check = worded & called("audit"), worded & (called("course/exercises") | of_attempts)
    assert by_audit | by_check == worded, "nobody calls these"
    for row in ROWS.values():
        seen = {"audit": row.code in by_audit, "check": row.code in by_check}
        whose = "both" if all(seen.values()) else "audit" if seen["audit"] else "check"
        assert row.seen_by == whose, row
        assert bool(row.unseen) == (whose == "check"), row


def test_a_row_names_a_lesson_that_there_is():
    assert {row.lesson for row in ROWS.values()} <= {f"{number:02}" for number in range(10)}
