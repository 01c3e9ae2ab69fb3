"""Which tests `make test` takes: the same ones every time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

MANY = """
import pytest

@pytest.mark.few(2)
@pytest.mark.parametrize("case", range(5))
def test_many(case): pass

@pytest.mark.few
@pytest.mark.parametrize("case", range(3))
def test_others(case): pass

@pytest.mark.thorough
def test_dear(): pass

def test_plain(): pass
"""

ALL = [
    "test_dear",
    *(f"test_many[{case}]" for case in range(5)),
    *(f"test_others[{case}]" for case in range(3)),
    "test_plain",
]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-m", "not thorough"], ["test_many[0]", "test_many[2]", "test_others[0]", "test_plain"]),
        ([], ALL),
        (["-m", "not thorough", "-k", "test_plain or 4"], ["test_plain"]),
        (["test_it.py::test_many[4]"], ["test_many[4]"]),
    ],
)
def test_of_many_cases_a_few_are_taken_and_always_the_same(pytester, arguments, expected):
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text("utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n    few\n    thorough\n")
    pytester.makepyfile(test_it=MANY)
    for _ in range(2):
        result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
        taken = sorted(line.partition("::")[2] for line in result.outlines if "::" in line)
        assert taken == expected
