"""The clinic: training code that runs, and is wrong. See the symptom, commit to a diagnosis, mend it.

A patient is an exercise of lesson 06: a folder of ``amp_lessons/exercises`` with a ``patient.py`` beside its
card. ``exercises.check(patient.id, mended)`` says whether the patient is healed.
"""

from amp_lessons.clinic.patients import Patient, patient, patients
from amp_lessons.exercises.patients.case import Diagnosis, Sighting
from amp_lessons.exercises.patients.observed import Curve, Observed

__all__ = ["Curve", "Diagnosis", "Observed", "Patient", "Sighting", "patient", "patients"]
