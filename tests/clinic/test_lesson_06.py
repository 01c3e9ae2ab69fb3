"""Lesson 06 shows every patient and curve, and what it says of them in words is true of those there are."""

from __future__ import annotations

import json

from amp_lessons import clinic
from amp_lessons.exercises.exercise import cell_id
from amp_lessons.quizzes import question
from tests.notebook_rules import source
from tests.test_packaging import ROOT

CELLS = json.loads((ROOT / "notebooks" / "06_when_amp_breaks.ipynb").read_text("utf-8"))["cells"]
IDS = [cell["id"] for cell in CELLS]
VIEWS = ("loss_curves", "CurveQuiz")
NUMBERS = ("no", "one", "two", "three", "four")


def test_every_patient_is_seen_before_its_card_its_code_and_its_check():
    for patient in clinic.patients():
        (seen,) = (at for at, cell in enumerate(CELLS) if source(cell) == f'views.Patient("{patient.id}")')
        parts = [IDS.index(cell_id(patient.id, part)) for part in ("card", "stub", "check")]
        assert [seen, *parts] == sorted([seen, *parts]), patient.id
        assert parts[1] == parts[0] + 1, patient.id


def test_patients_come_in_the_order_of_their_places():
    shown = [source(cell).split('"')[1] for cell in CELLS if source(cell).startswith("views.Patient(")]
    assert shown == [patient.id for patient in clinic.patients()]


def test_as_many_are_silent_as_the_question_says():
    patients = clinic.patients()
    heard = sum(not patient.silent for patient in patients)
    asked = question("breaks.silent")
    assert len(patients) == 14
    assert "fourteen" in asked.text
    assert NUMBERS[heard] in asked.answer.text.lower().split()


def test_the_words_count_the_patients_and_exercises_of_the_core():
    core = [source(cell) for cell in CELLS[: IDS.index("deeper")]]
    diagnosed = sum(each.startswith("views.Patient(") for each in core)
    mended = sum(each.startswith("views.ExerciseCard(") for each in core)
    assert (diagnosed, mended) == (4, 3)
    assert "for the core, 3 exercises included" in source(CELLS[0])
    assert "ten more patients" in source(CELLS[0])
    assert "four of them in its core" in source(CELLS[IDS.index("silent")])


def test_all_curves_are_shown_and_asked_and_the_healthy_ones_counted():
    shown = {
        name: [source(cell) for cell in CELLS if source(cell).startswith(f"views.{name}(")] for name in VIEWS
    }
    for name in VIEWS:
        assert shown[name] == [f"views.{name}(range(1, 7))", f"views.{name}(range(7, 13))"]
    healthy = [question(f"curves.{each}").answer.text.startswith("Healthy") for each in clinic.LOSS_CURVES]
    assert (sum(healthy[:6]), sum(healthy[6:])) == (1, 2)
    assert "In one of them nothing at all is wrong" in source(CELLS[IDS.index("curves")])
    assert "In two of these six trainings nothing" in source(CELLS[IDS.index("deeper-curves")])


def test_curves_that_are_said_to_look_alike_do():
    names = [clinic.LOSS_CURVES[number - 1] for number in (2, 5)]
    assert "Curves 2 and 5 have the same shape" in source(CELLS[IDS.index("curves-why")])
    assert names == ["one_autocast", "infinite_gradient"]
    assert "Curves 7, 9 and 10 look alike" in source(CELLS[IDS.index("more-curves-why")])
    for number in (7, 9, 10):
        losses = clinic.loss_curve(clinic.LOSS_CURVES[number - 1]).losses
        assert losses[-1] < 0.3 * losses[0]
