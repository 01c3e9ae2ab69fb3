"""Whatever is handed in and whatever it does, a check ends in a report that says so."""

from __future__ import annotations

import sys

import pytest
import torch

from amp_lessons import exercises
from amp_lessons.course.exercises import shelf

pytestmark = pytest.mark.slow

SCALE = "largest_safe_scale"
ALL = [exercise.id for exercise in (*exercises.catalog(), *shelf.interview_tasks())]


def check(code, exercise_id=SCALE, limit_s=10.0):
    return exercises.check(exercise_id, code, time_limit_s=limit_s)


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.few
@pytest.mark.parametrize(
    "attempt", [None, 3, "train", [], object(), torch.zeros(2), Unprintable(), lambda: 0]
)
def test_rubbish_instead_of_an_attempt_is_a_finding(attempt):
    for exercise_id in ALL:
        report = check(attempt, exercise_id)
        assert not report.passed, report
        assert report.findings[0].code != "checker_failed", report
        assert str(report)


@pytest.mark.few
@pytest.mark.parametrize(
    "value", [None, float("nan"), "text", object(), [], {}, 1j, Unprintable(), type, ...]
)
def test_rubbish_is_a_finding(value):
    report = check(lambda gradients: value)
    assert report.status == "not passed"
    assert report.findings[0].code in ("wrong_return_type", "not_a_scale")


@pytest.mark.few
@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError("too much")]
)
def test_any_exception_is_a_finding(error):
    def code(gradients):
        raise error

    report = check(code)
    assert report.findings[0].code == "raised"
    assert type(error).__name__ in report.findings[0].message


def test_the_seed_that_a_refusal_tells_draws_the_same_cases():
    def code(gradients):
        return 2.0**7 if len(gradients) == 3 else 2.0**-140

    first = check(code)
    again = exercises.check(SCALE, code, seed=first.seed)
    assert not first.passed
    assert first.seed is not None
    assert [f.message for f in first.findings] == [f.message for f in again.findings]
    for wrong in (-1, 2**31, 1.0, True, "7"):
        with pytest.raises(ValueError, match="seed must be an integer"):
            exercises.check(SCALE, code, seed=wrong)


def test_where_nothing_can_fork_that_is_said_and_no_try_counted(monkeypatch):
    monkeypatch.delattr("os.fork")
    report = check(lambda gradients: 1.0)
    assert report.status == "not attempted yet"
    assert "in WSL 2, or on" in str(report)


def test_endless_recursion_is_a_finding():
    def code(gradients):
        return code(gradients)

    assert "RecursionError" in check(code).findings[0].message


def test_an_exception_whose_text_raises_is_a_finding():
    class NastyError(Exception):
        def __str__(self):
            raise ValueError("no text")

    def code(gradients):
        raise NastyError

    report = check(code)
    assert report.status == "not passed"
    assert "Nasty" in report.findings[0].message


def test_a_megabyte_of_output_is_cut(capfd):
    def code(gradients):
        for _ in range(1000):
            print("x" * 1000)
            print("y" * 100, file=sys.stderr)
        return exercises.solution(SCALE).function(gradients)

    report = check(code)
    assert report.passed
    assert [f.code for f in report.findings if f.kind == "note"] == ["prints_a_lot"]
    assert len(report.printed) < 5000
    assert capfd.readouterr() == ("", "")


def test_output_is_shown():
    def code(gradients):
        print("largest:", 3.5)
        return 0.0

    assert "largest: 3.5" in check(code).printed


def test_an_endless_loop_names_its_line():
    def code(gradients):
        while True:
            len(gradients)

    report = check(code, limit_s=1.0)
    assert report.findings[0].code == "time_limit"


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_unusual_limits_are_refused(limit):
    with pytest.raises(ValueError, match="positive number of seconds"):
        exercises.check(SCALE, None, time_limit_s=limit)
