"""The patients as plain scripts under a watch: an audit names what each has, and nothing once mended."""

from __future__ import annotations

from importlib import import_module

import pytest

from amp_lessons import clinic
from tests.audit.plain_loops import as_script, mistakes, watch_call

pytestmark = pytest.mark.usefixtures("one_thread")

PATIENTS = {patient.id: patient for patient in clinic.patients()}
TABLES = {id: import_module(f"amp_lessons.course.exercises.{id}.attempts").TABLE for id in PATIENTS}

# what an audit says in the place of a patient's own code, and why
INSTEAD = {
    "heal_limping_restart": {"scaler_not_saved"},  # the checkpoint is what is seen, not what comes back
}

# what else some have, and an audit says too; nothing of it is what another patient has
BESIDE = {
    "heal_same_epochs": {"backward_in_autocast"},  # the one context is open during backward, too
    "heal_fatal_batch": {"weights_broken"},  # a step is made with its NaN
    "heal_first_batch": {"weights_broken"},  # and here too
    "heal_missed_warm_up": {"average_on_skipped_step"},  # it keeps a schedule and averaged weights
}


def seen_in(id: str, code: object) -> set[str]:
    """Return the codes of what an audit finds wrong with somebody's script."""
    return mistakes(watch_call(lambda: PATIENTS[id].observe(as_script(code))))


@pytest.mark.few(4)
@pytest.mark.parametrize("id", PATIENTS)
def test_a_patient_is_named_as_no_other_is_and_a_mended_one_is_clean(id):
    patient = PATIENTS[id]
    others = {other.case.code for other in PATIENTS.values() if other.id != id}
    assert not others & BESIDE.get(id, set())
    assert seen_in(id, patient.broken) == INSTEAD.get(id, {patient.case.code}) | BESIDE.get(id, set())
    assert seen_in(id, patient.mended) == set()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("id", "name"),
    [pytest.param(id, name, id=f"{id}-{name}") for id, table in TABLES.items() for name in table.right],
)
def test_other_good_ways_to_mend_a_patient_are_clean(id, name):
    assert seen_in(id, TABLES[id].right[name][-1]) == set()
