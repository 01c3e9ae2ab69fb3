"""What rules are given, and in which order what they say is told; what each says is held by the scripts."""

from __future__ import annotations

import torch

from amp_lessons.audit.findings import failed, first
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.judge import Judge

HERE = {"step": 0, "line": ("train.py", 1)}


def step_asked(**more):
    facts = dict.fromkeys(("unscaled", "cleared", "spent", "by_closure", "autocast"), False)
    facts |= dict.fromkeys(("scaler", "scaled_by", "scale")) | {
        "optimizer": 1,
        "fresh": True,
        "waiting": True,
    }
    return events.StepAsked(**HERE, **(facts | more))


def codes(*told):
    judge = Judge()
    for event in told:
        judge.judge(event)
    return [each.code for each in judge.sightings()]


def test_of_findings_that_weigh_the_same_the_cause_is_said_before_what_comes_of_it():
    made = events.ScalerMade(**HERE, scaler=7, enabled=True)
    twice = step_asked(scaled_by=7, scale=2.0**16, overflowed=True, fresh=False)
    assert codes(made, twice) == ["optimizer_step_direct", "step_bypasses_scaler", "double_step"]
    outdated = {"scaler": 7, "optimizer": 1, "clipped": False, "outdated": True}
    unscaled = events.Unscaled(**HERE, change="undone", **outdated)
    assert codes(unscaled) == ["unscaled_twice", "update_between_steps"]
    half = step_asked(half=torch.float16, eps_vanishes=(1e-8, torch.float16))
    assert codes(half) == ["eps_vanishes", "half_parameters"]


def test_a_rule_remembers_nothing_of_another_training():
    first, second = (events.StepDone(**HERE, optimizer=1, scaler=scaler, happened=True) for scaler in (7, 8))
    assert codes(first, second) == ["scaler_recreated"]
    assert codes(first) == codes(second) == []


def test_a_scale_that_begins_high_may_fall_for_longer_before_no_scale_will_cure_it():
    made = events.ScalerMade(**HERE, scaler=7, enabled=True, scale=2.0**40)
    skipped = events.StepDone(**HERE, optimizer=1, scaler=7, happened=False, loss=1.5)
    assert codes(made, *[skipped] * 30) == []
    assert codes(made, *[skipped] * 50) == codes(*[skipped] * 20) == ["always_overflows"]


def test_the_first_mistake_is_the_root_cause_and_nobody_looks_further():
    def mistakes():
        yield failed("cause", "seen", "mend it")
        raise AssertionError("what comes later takes for granted that nothing came before")

    assert first(mistakes()).code == "cause"
    assert first(iter([])) is None
