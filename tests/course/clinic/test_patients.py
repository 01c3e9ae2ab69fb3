"""Each patient, in any variant, shows its symptom, deserves its own diagnosis alone, and can be healed."""

from __future__ import annotations

import ast
import itertools

import pytest
import torch

from amp_lessons import clinic, exercises
from amp_lessons.course.exercises import shelf

PATIENTS = clinic.patients()
SEEDS = range(5)
EACH = pytest.mark.parametrize("patient", PATIENTS, ids=lambda patient: patient.id)
VARIANTS = pytest.mark.parametrize(
    "patient",
    [
        pytest.param(
            clinic.patient(patient.id, seed),
            id=f"{patient.id}-{seed}",
            marks=pytest.mark.thorough if seed > 1 else (),
        )
        for patient in PATIENTS
        for seed in SEEDS
    ],
)


@VARIANTS
def test_the_broken_code_shows_the_symptom_and_the_mended_does_not(patient):
    assert patient.shows(patient.observe())
    assert not patient.shows(patient.observe(patient.mended))


@VARIANTS
@pytest.mark.few(3)
def test_the_broken_code_is_rejected_for_what_it_has_and_the_mended_passes(patient):
    rejected = exercises.check(patient.id, patient.broken)
    assert (rejected.status, rejected.findings[0].code) == ("not passed", patient.case.code)
    healed = exercises.check(patient.id, patient.mended)
    assert healed.passed, healed
    assert all(finding.kind == "passed" for finding in healed.findings), healed


def signature(patient):
    """Return how the functions of a patient are called, whatever they are called themselves."""
    tree = ast.parse(patient.exercise.stub)
    return [ast.dump(node.args) for node in tree.body if isinstance(node, ast.FunctionDef)]


PAIRS = [
    pytest.param(one, other, id=f"{one.id}-asks-{other.id}")
    for one, other in itertools.permutations(PATIENTS, 2)
    if signature(one) == signature(other)
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_other_patients_diagnosis_fits_better(one, other):
    """Asked of another patient's code, a check names what that one has."""
    report = exercises.check(one.id, other.broken)
    assert report.findings[0].code == other.case.code != one.case.code


def differing(patient):
    broken, mended = patient.source.splitlines(), patient.mended_source.splitlines()
    return sum(line not in mended for line in broken), sum(line not in broken for line in mended)


@EACH
def test_the_lesson_shows_the_first_variant_and_the_others_differ_by_no_more_than_clothes(patient):
    exercise = shelf.find(patient.id)
    assert (patient.source, patient.mended_source) == (exercise.stub, exercise.solution_source)
    variants = [clinic.patient(patient.id, seed) for seed in SEEDS]
    assert len({each.source for each in variants}) == len(SEEDS)
    for each in variants:
        assert clinic.patient(patient.id, each.seed).source == each.source
        assert differing(each) == differing(patient), "what is exchanged is not the mistake"
        assert max(map(len, each.source.splitlines())) <= 110


@EACH
def test_what_is_said_of_it_is_whole_and_no_diagnosis(patient):
    assert len(patient.diagnoses) in (4, 5)
    assert sum(diagnosis.right for diagnosis in patient.diagnoses) == 1
    assert all(len(diagnosis.because.split()) >= 6 for diagnosis in patient.diagnoses)
    drawn = (clinic.patient(patient.id, seed).diagnoses for seed in range(20))
    places = {[each.right for each in diagnoses].index(True) for diagnoses in drawn}
    assert len(places) > 2, "its place must not give the right one away"
    assert 10 <= len(patient.symptom.split()) <= 40
    assert patient.symptom.endswith(".")
    said = patient.symptom + patient.title + patient.id
    assert not {"unscale", "scaler", "autocast", "state_dict", "skipp"} & set(said.lower().split())
    assert patient.seen_at, "somebody met it"
    for sighting in patient.seen_at:
        assert sighting.url.startswith("https://")
        assert len(sighting.told.split()) >= 5


@EACH
def test_no_hint_hands_over_a_line_of_the_cure(patient):
    cure = set(patient.mended_source.splitlines()) - set(patient.source.splitlines())
    for words in (" ".join(hint.split()) for hint in patient.exercise.hints):
        assert not [line for line in cure if "(" in line and line.strip().rstrip(":") in words]


@EACH
def test_a_run_reads_as_text_says_nothing_of_the_cause_and_leaves_the_random_numbers_alone(patient):
    before = torch.get_rng_state()
    observed = patient.observe()
    assert torch.equal(torch.get_rng_state(), before)
    for text in (str(observed), *observed._repr_mimebundle_().values()):
        assert not [word for word in ("unscale", "autocast", "scaler", "skip") if word in text.lower()], text
    with pytest.raises(KeyError):
        observed.curve("what nobody watched")


@pytest.mark.parametrize("wrong", ["heal_standstil", "train_with_amp"])
def test_an_unknown_patient_is_answered_with_those_there_are(wrong):
    with pytest.raises(ValueError, match=r"there is no patient .*heal_"):
        clinic.patient(wrong)
