"""The clinic: training code that runs, and is wrong. See the symptom, commit to a diagnosis, mend it.

A patient is an exercise of lesson 06: a folder of ``exercises`` with a ``patient.py`` beside its
card. ``exercises.check(patient.id, mended)`` says whether the patient is healed. The module ``symptoms`` has
the questions that lead from what somebody sees to its cause; ``loss_curve`` trains one of twelve runs.
"""

from amp_lessons.course.clinic.loss_curves import LOSS_CURVES, LossCurve, loss_curve
from amp_lessons.course.clinic.patients import Patient, patient, patients
from amp_lessons.course.exercises.patients.case import Curve, Diagnosis, Observed, Sighting

__all__ = [
    "LOSS_CURVES",
    "Curve",
    "Diagnosis",
    "LossCurve",
    "Observed",
    "Patient",
    "Sighting",
    "loss_curve",
    "patient",
    "patients",
]
