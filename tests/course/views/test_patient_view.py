"""A patient as the lesson shows it: a run, a diagnosis, and who met the same only after the right one."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from amp_lessons import clinic, views
from amp_lessons.course.clinic import Curve, Observed
from amp_lessons.course.views.widgets.patient import describe, observed_picture


@pytest.fixture(scope="module")
def view():
    return views.Patient("heal_same_epochs")


def letters(view):
    rights = [choice.right for choice in view.question.choices]
    return "abcdefgh"[rights.index(False)], "abcdefgh"[rights.index(True)]


def test_a_diagnosis_is_answered_and_only_the_right_one_tells_who_met_it(view):
    patient = clinic.patient("heal_same_epochs")
    wrong, right = letters(view)
    view.diagnose(wrong)
    assert view.verdict.startswith("Not quite. ")
    assert patient.seen_at[0].url not in view.children[-1].value
    view.diagnose(right)
    assert view.verdict.startswith("Yes. ")
    assert all(each.url in view.children[-1].value for each in patient.seen_at)


def test_before_a_diagnosis_nothing_gives_the_cause_away():
    fresh = views.Patient("heal_same_epochs")
    shown = fresh._repr_mimebundle_()["text/plain"]
    first, symptom, *choices = shown.splitlines()
    assert first.startswith("[measured] mean loss, by epoch: from 2.3")
    assert symptom == clinic.patient("heal_same_epochs").symptom
    assert [each[:2] for each in choices] == ["a)", "b)", "c)", "d)", "e)"]
    assert "Yes." not in shown
    assert clinic.patient("heal_same_epochs").seen_at[0].url not in shown


def test_without_a_kernel_the_picture_carries_the_question_and_the_answer_is_folded():
    fresh = views.Patient("heal_left_behind")
    bundle = fresh._repr_mimebundle_()
    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))
    alone = Image.open(io.BytesIO(fresh.picture.png(fresh.caption)))
    assert picture.width >= 600
    assert picture.height > alone.height
    page = fresh.stand_in()
    right = next(each for each in clinic.patient("heal_left_behind").diagnoses if each.right)
    assert page.index("<details>") < page.index(right.because[:20])


def test_another_seed_asks_in_another_order():
    orders = {
        tuple(choice.text for choice in views.Patient("heal_snail", seed).question.choices)
        for seed in range(4)
    }
    assert len(orders) > 1


@pytest.mark.parametrize("patient", clinic.patients(), ids=lambda patient: patient.id)
def test_every_patient_of_the_lesson_is_drawn(patient):
    observed = patient.observe()
    figure = observed_picture(observed).figure
    assert len(figure.axes) == len(observed.curves)
    written = {text.get_text() for text in figure.texts}
    assert written >= set(observed.numbers)
    assert describe(observed).endswith(".")


def test_what_hardly_changes_is_drawn_nearly_flat():
    (axes,) = observed_picture(Observed((Curve("loss", "epoch", (2.301, 2.302)),), {})).figure.axes
    low, high = axes.get_ylim()
    assert high - low > 0.1


def test_what_is_nan_is_marked_and_named():
    nan = float("nan")
    (axes,) = observed_picture(Observed((Curve("loss", "batch", (2.0, nan, nan)),), {})).figure.axes
    marks = axes.lines[-1]
    assert list(marks.get_xdata()) == [2, 3]
    assert axes.get_legend().get_texts()[0].get_text() == "NaN or inf"
