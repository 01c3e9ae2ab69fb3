"""A cell run again in the same kernel: what was set and pressed in its view is still there."""

import pytest
from IPython.core.formatters import DisplayFormatter

from amp_lessons import views
from amp_lessons.course import progress
from amp_lessons.course.views.base import again, shown
from amp_lessons.course.views.widgets.quiz import LETTERS


@pytest.fixture
def run(monkeypatch):
    """Run a cell: show what a function returns, on a page, as the code of a cell would."""
    monkeypatch.setattr(shown, "has_page", lambda: True)
    monkeypatch.setattr(shown, "publish", lambda *_, **__: None)
    monkeypatch.setattr(again, "_LAST", {})

    def run_cell(make, code="the cell"):
        monkeypatch.setattr(again, "code_of_cell", lambda: code)
        view = make()
        DisplayFormatter().format(view)
        return view

    return run_cell


def play(**values):
    return views.Play(lambda n: {"bytes": {"fp32": 4.0 * n}}, "n", values.get("n", [1, 2, 3]), start=1)


def test_controls_stand_where_they_were_left(run):
    run(play).value = 3
    assert run(play).caption.startswith("n 3.")
    first = run(lambda: views.BitView("0.1", "fp16"))
    first.format = "bf16"
    first.type("2^-24")
    later = run(lambda: views.BitView("0.1", "fp16"))
    assert (later.format, later.value, later.caption) == ("bf16", first.value, first.caption)


@pytest.mark.parametrize("other", [{"code": "another cell"}, {"make": lambda: play(n=[1, 5])}])
def test_other_code_or_another_beginning_begins_anew(run, other):
    run(play).value = 3
    assert run(**{"make": play, "code": "the cell", **other}).value in (1, 5)


def test_what_a_cell_shows_without_a_page_is_what_its_code_says(run, monkeypatch):
    run(play).value = 3
    monkeypatch.setattr(shown, "has_page", lambda: False)
    assert run(play).value == 1


def test_the_answer_that_was_pressed_last_is_shown_and_kept_once(run, monkeypatch):
    first = run(lambda: views.Quiz("scaling.floor"))
    right = [choice.right for choice in first.question.choices].index(True)
    first.choose(LETTERS[(right + 1) % 3])
    first.choose(LETTERS[right])
    monkeypatch.setattr(progress, "change", lambda change: pytest.fail("kept again"))
    later = run(lambda: views.Quiz("scaling.floor"))
    assert later.verdict == first.verdict
    assert later.verdict.startswith("Yes.")
    assert later._why.value == first._why.value
    assert "amp-right" in later.children[2 + right]._dom_classes  # what says that it has arrived comes first


def test_an_answer_to_another_question_is_not_taken_over(run):
    run(lambda: views.Quiz("scaling.floor")).choose("a")
    assert run(lambda: views.Quiz("scaling.order")).chosen is None


def test_a_race_of_another_dtype_is_still_there(run):
    first = run(lambda: views.RaceView("digits", "fp16").run())
    first.dtype = "bf16"
    first.run()
    later = run(lambda: views.RaceView("digits", "fp16").run())
    assert later.race is first.race
    assert later.caption == first.caption


def test_a_list_brings_what_stands_below_it(run):
    first = run(lambda: views.CurveQuiz((1, 2)))
    first.next()
    first.choose("a")
    later = run(lambda: views.CurveQuiz((1, 2)))
    assert (later.number, later.verdict) == (2, first.verdict)
