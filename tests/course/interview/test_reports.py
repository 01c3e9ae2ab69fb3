"""The report of a mock interview as people read it, made by hand."""

from __future__ import annotations

from dataclasses import replace

from amp_lessons.course.interview.planning import Asked
from amp_lessons.course.interview.reporting import MockReport, Turn
from tests.forms import forms

LONG = "why does the loss-scale of a long-running training fall when nobody touches the half-precision format"
FIRST = Asked("question", LONG, ("one <b>", "two `x`", "three"), "loss_scaling", "03", "a", minutes=3)
SECOND = Asked("question", "what is bf16?", ("eight bits",), "formats", "01", "b")
TURNS = (Turn(FIRST, (0,), 61.0), Turn(SECOND, (0,), 130.0))
REPORT = MockReport("senior", 20, 3, TURNS, message="the *file* of progress is damaged")


def test_a_report_and_one_of_nothing_in_each_form(golden):
    golden("mock_report.txt", forms(REPORT))
    golden("mock_report_of_nothing.txt", forms(replace(REPORT, turns=(), message="")))
