"""A cell run again in the same kernel: what was set and pressed in its view is still there."""

import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from amp_lessons import models, views
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


def test_a_slider_stands_where_it_was_left(run):
    run(play).value = 3
    later = run(play)
    assert later.value == 3
    assert later.caption.startswith("n 3.")


@pytest.mark.parametrize("other", [{"code": "another cell"}, {"make": lambda: play(n=[1, 5])}])
def test_other_code_or_another_beginning_begins_anew(run, other):
    run(play).value = 3
    assert run(**{"make": play, "code": "the cell", **other}).value in (1, 5)


def test_what_was_typed_and_chosen_is_still_there(run):
    first = run(lambda: views.BitView("0.1", "fp16"))
    first.format = "bf16"
    first.type("2^-24")
    later = run(lambda: views.BitView("0.1", "fp16"))
    assert (later.format, later.value, later.caption) == ("bf16", first.value, first.caption)


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


def test_the_diagnosis_of_a_patient_is_still_there_with_what_it_has_opened(run):
    first = run(lambda: views.Patient("heal_snail"))
    right = [choice.right for choice in first.question.choices].index(True)
    first.diagnose(LETTERS[right])
    later = run(lambda: views.Patient("heal_snail"))
    assert later.verdict == first.verdict
    assert later._met.value == first._met.value != ""


def test_a_list_brings_what_stands_below_it(run):
    first = run(lambda: views.CurveQuiz((1, 2)))
    first.next()
    first.choose("a")
    later = run(lambda: views.CurveQuiz((1, 2)))
    assert (later.number, later.verdict) == (2, first.verdict)


def test_a_tree_stands_where_the_answers_have_led(run):
    first = run(views.SymptomTree)
    first.answer(first.answers[0])
    later = run(views.SymptomTree)
    assert later.answers == first.answers
    later.back()
    assert first.answers != later.answers == run(views.SymptomTree).answers


def test_a_step_goes_on_in_the_phase_that_it_has_come_to(run):
    batch = torch.randn(4, 64), torch.zeros(4, dtype=torch.long)

    def cycle():
        return views.CycleView(models.digits_classifier(8), [batch], torch.nn.functional.cross_entropy)

    first = run(cycle)
    first.advance(2)
    later = run(cycle)
    assert (later.snapshot, later.caption) == (first.snapshot, first.caption)
    assert later.advance().phase == "unscale"


def test_a_race_of_another_dtype_is_still_there(run):
    first = run(lambda: views.RaceView("digits", "fp16").run())
    first.dtype = "bf16"
    first.run()
    later = run(lambda: views.RaceView("digits", "fp16").run())
    assert later.race is first.race
    assert later.caption == first.caption


def test_hints_and_solution_that_were_opened_stay_open(run):
    first = run(lambda: views.ExerciseCard("decode_bits"))
    first.hint(1)
    assert "Hint 1 of 3" in run(lambda: views.ExerciseCard("decode_bits"))._hints_html.value
    first = run(lambda: views.ExerciseCard("decode_bits"))
    first.show_solution()
    assert run(lambda: views.ExerciseCard("decode_bits"))._solution_html.value == first._solution_html.value
