"""Lesson 06 shows every patient, and what it says of them in words is true of those there are."""

from __future__ import annotations

import json

from amp_lessons import clinic
from amp_lessons.exercises.exercise import cell_id
from amp_lessons.quizzes import question
from tests.notebook_rules import source
from tests.test_packaging import ROOT

CELLS = json.loads((ROOT / "notebooks" / "06_when_amp_breaks.ipynb").read_text("utf-8"))["cells"]
NUMBERS = ("no", "one", "two", "three", "four")


def test_every_patient_is_seen_before_its_card_its_code_and_its_check():
    ids = [cell["id"] for cell in CELLS]
    for patient in clinic.patients():
        (seen,) = (at for at, cell in enumerate(CELLS) if source(cell) == f'views.Patient("{patient.id}")')
        parts = [ids.index(cell_id(patient.id, part)) for part in ("card", "stub", "check")]
        assert [seen, *parts] == sorted([seen, *parts]), patient.id
        assert parts[0] == seen + 1


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


def test_the_first_cell_counts_the_patients_and_their_minutes():
    patients = clinic.patients()
    minutes = sum(patient.exercise.minutes for patient in patients)
    assert f"{len(patients)} short exercises included ({minutes} of these minutes)" in source(CELLS[0])
