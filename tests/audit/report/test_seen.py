"""What an audit that is under way tells its report and its listeners."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
import torch
from torch import nn

from amp_lessons import audit, devices


def step(times=1):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(times):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_the_exception_that_ended_it_is_explained():
    with pytest.raises(RuntimeError), audit.watch() as seen:
        nn.Linear(2, 2).half()(torch.zeros(1, 2))
    assert seen.report.ended.startswith("RuntimeError: mat1 and mat2")
    assert seen.report.explanation.known


def test_an_interruption_is_told_but_needs_no_explanation():
    with pytest.raises(KeyboardInterrupt), audit.watch() as seen:
        raise KeyboardInterrupt
    assert seen.report.ended == "KeyboardInterrupt"
    assert seen.report.explanation is None


def test_how_it_was_done_is_measured_and_asked():
    start = time.perf_counter()
    with audit.watch() as seen:
        assert seen.report.how.device == "no device", "nothing was trained yet"
        step()
    taken = time.perf_counter() - start
    how = seen.report.how
    assert 0 < how.looking_seconds < how.seconds <= taken
    assert seen.report.how.seconds == how.seconds  # it counts no further
    assert (how.torch, how.device) == (torch.__version__, devices.cpu_name())
    assert abs(datetime.fromisoformat(how.began).timestamp() - time.time()) < 60


def test_listeners_hear_every_step_and_the_end():
    heard = []
    with audit.watch(every=2) as seen:
        seen.listen(lambda index, sampled: heard.append((index, sampled)), at_end=lambda: heard.append("end"))
        step(3)
    assert heard == [(0, True), (1, False), (2, True), "end"]


def test_what_goes_wrong_in_a_listener_is_the_audits_trouble_and_nobody_elses():
    def fail(*_):
        raise ValueError("a drawing failed")

    with audit.watch() as seen:
        seen.listen(fail, at_end=fail)
        step(2)
    (trouble,) = seen.report.not_seen
    assert "a drawing failed" in trouble
    assert [each.index for each in seen.steps] == [0, 1]


def test_a_listener_may_end_the_training():
    def enough(*_):
        raise SystemExit

    with audit.watch() as seen:
        seen.listen(enough)
        with pytest.raises(SystemExit):
            step()
    assert len(seen.steps) == 1
