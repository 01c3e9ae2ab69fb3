"""A patient as the lesson shows it: a run, a diagnosis, and who met the same only after the right one."""

from __future__ import annotations

import base64
import io

from PIL import Image

from amp_lessons import clinic, views
from amp_lessons.course.clinic import Curve, Observed
from amp_lessons.course.views.widgets.patient import describe, observed_picture


def test_without_a_kernel_the_picture_carries_the_question_and_the_answer_is_folded():
    fresh = views.Patient("heal_left_behind")
    picture = Image.open(io.BytesIO(base64.b64decode(fresh._repr_mimebundle_()["image/png"])))
    alone = Image.open(io.BytesIO(fresh.picture.png(fresh.caption)))
    assert picture.width >= 600
    assert picture.height > alone.height
    page = fresh.stand_in()
    right = next(each for each in clinic.patient("heal_left_behind").diagnoses if each.right)
    assert page.index("<details>") < page.index(right.because[:20])


def test_a_diagnosis_has_a_verdict_and_another_seed_asks_in_another_order():
    view = views.Patient("heal_snail")
    assert view.verdict == ""
    view.diagnose("abcde"[[choice.right for choice in view.question.choices].index(True)])
    assert view.verdict.startswith("Yes. ")
    asked = (views.Patient("heal_snail", seed).question for seed in range(4))
    assert len({tuple(choice.text for choice in each.choices) for each in asked}) > 1


def test_every_patient_of_the_lesson_is_drawn():
    for patient in clinic.patients():
        observed = patient.observe()
        figure = observed_picture(observed).figure
        assert len(figure.axes) == len(observed.curves), patient.id
        assert {text.get_text() for text in figure.texts} >= set(observed.numbers), patient.id
        assert describe(observed).endswith("."), patient.id


def test_what_hardly_changes_is_drawn_nearly_flat_and_what_is_nan_is_marked():
    nan = float("nan")
    (axes,) = observed_picture(Observed((Curve("loss", "batch", (2.301, nan, nan, 2.302)),), {})).figure.axes
    low, high = axes.get_ylim()
    assert high - low > 0.1
    assert list(axes.lines[-1].get_xdata()) == [2, 3]
    assert axes.get_legend().get_texts()[0].get_text() == "NaN or inf"
