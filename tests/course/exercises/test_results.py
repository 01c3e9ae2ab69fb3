"""Reports read well in a terminal, on GitHub and in a notebook, and escape what learners write."""

from __future__ import annotations

import dataclasses
import pickle
from html import unescape
from html.parser import HTMLParser

import pytest

from amp_lessons import exercises
from amp_lessons.audit.findings import failed, note, passed, todo
from amp_lessons.course.exercises.report.results import Hint, OtherWay, Report, SideBySide, Solution
from tests.forms import forms

REPORT = Report(
    "train_with_amp",
    "A <loop>",
    (
        failed("no_update", "scaler.update() is missing & more", "call it | once"),
        note("style", "a remark"),
        passed("fine", "good"),
    ),
    (SideBySide("loss", "epoch", (1.0, 0.5, 0.2), (1.0, 0.9)),),
    "<b>printed</b>",
)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("br",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def well_formed(html):
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    return tags.seen


def test_ok_and_status_follow_the_kinds():
    assert [finding.ok for finding in REPORT.findings] == [False, True, True]
    assert not todo("later").ok
    assert REPORT.status == "not passed"
    assert Report("a", "A", (note("n", "m"), passed("p", "m"))).status == "passed"
    assert Report("a", "A", (todo("later"),)).status == "not attempted yet"
    assert not Report("a", "A", ()).passed


def test_html_is_well_formed_and_escaped():
    html = REPORT._repr_mimebundle_()["text/html"]
    assert "table" in well_formed(html)
    assert "<loop>" not in html
    assert "<b>" not in html
    assert "mistake" in html, "what is told by colour or mark must be told in words too"


def test_lines_of_text_stay_short():
    report = exercises.check("train_with_amp", lambda *a, **k: None)
    assert max(map(len, str(report).splitlines())) <= 100


def test_numbers_are_left_out_of_a_passed_report():
    assert "expected" not in str(Report("a", "A", (passed("p", "m"),), REPORT.comparisons))


def test_numbers_that_agree_as_far_as_they_go_are_left_out():
    same = SideBySide("loss", "epoch", (1.0, 0.5), (1.0,))
    assert "expected" not in str(Report("a", "A", REPORT.findings, (same,)))


def test_solutions_hints_and_overview_render():
    for thing in (
        exercises.solution("loss_scaler"),
        exercises.hint("loss_scaler", 1),
        exercises.overview(),
        exercises.catalog()[0],
    ):
        bundle = thing._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/markdown", "text/html"}
        well_formed(bundle["text/html"])
        assert bundle["text/plain"] == str(thing) or "Exercise" in bundle["text/plain"]


def test_reports_survive_the_pipe():
    assert pickle.loads(pickle.dumps(REPORT)) == REPORT


def test_a_refusal_tells_the_seed_of_its_cases_and_nothing_else_does():
    drawn = dataclasses.replace(REPORT, seed=321)
    for said in (str(drawn), *drawn._repr_mimebundle_().values()):
        assert f'exercises.check("{REPORT.exercise_id}", …, seed=321)' in unescape(said)
    assert "seed" not in str(dataclasses.replace(drawn, findings=(passed("fine", "good"),)))
    assert "seed" not in str(REPORT)


CHATTY = dataclasses.replace(REPORT, seed=321, printed="\n".join(f"line {n}" for n in range(14)))
WAY = OtherWay("with `sum`", "it *is* shorter", "def f():\n    return 1\n")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("report.txt", CHATTY),
        ("hint.txt", Hint("loss_scaler", 1, 3, "look at `scale`", "the file is damaged")),
        ("solution.txt", Solution("id", "def f():\n    return 0\n", "because `0`", None, "damaged", (WAY,))),
        ("card.txt", exercises.catalog()[0]),
    ],
)
def test_what_a_learner_sees_in_each_form(name, shown, golden):
    golden(name, forms(shown))
