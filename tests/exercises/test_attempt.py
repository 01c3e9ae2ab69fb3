"""What ends a check: the four questions that every attempt is asked, and a mistake that was found."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.audit.findings import failed
from amp_lessons.exercises.attempt import Attempt, Rejected, outcome_of, require_none, run
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report.results import SideBySide

MISTAKE = failed("no_step", "seen", "mend it")
LOSSES = SideBySide("loss", "batch", (1.0,), (2.0,))


@pytest.fixture(autouse=True)
def _contained():
    with sandbox.contained(30.0):
        yield


def code_of(call, *args, **kwargs):
    with pytest.raises(Rejected) as rejected:
        call(*args, **kwargs)
    return rejected.value.said[0].code


def stub(*_):
    raise NotImplementedError


def test_what_is_no_function_is_rejected():
    assert code_of(Attempt(3, ("f",)).function) == "not_a_function"


def test_another_signature_than_the_stubs_is_rejected():
    assert code_of(Attempt(lambda: 0, ("f",)).function, 1, 2) == "signature"


def test_a_stub_is_not_attempted_and_one_stub_of_two_is_unfinished():
    assert code_of(outcome_of, stub) == "not_attempted"
    assert code_of(outcome_of, stub, part="update") == "unfinished"


def test_a_part_may_be_named_when_the_code_has_ended():
    called = []

    def first_part_then_stub():
        called.append("step")
        stub()

    with pytest.raises(Rejected) as rejected:
        outcome_of(first_part_then_stub, part=lambda: called[-1])
    assert rejected.value.said[0].message.startswith("step still raises")


def test_what_leaves_a_setting_behind_is_rejected():
    assert code_of(outcome_of, torch.set_grad_enabled, False) == "leaves_state_behind"
    assert torch.is_grad_enabled()


def test_an_exception_ends_a_run_and_is_part_of_an_outcome():
    def divide():
        return 1 / 0

    assert code_of(run, divide, about="for zero") == "raised"
    assert isinstance(outcome_of(divide).error, ZeroDivisionError)


def test_a_mistake_ends_the_check_together_with_what_shows_it():
    with pytest.raises(Rejected) as rejected:
        require_none(iter([MISTAKE, failed("later", "", "")]), LOSSES)
    assert rejected.value.said == (MISTAKE, LOSSES)


def test_without_a_mistake_the_check_goes_on():
    require_none(iter([]), LOSSES)
