"""Simulated time is seen by the attempt, by nobody else, and by nobody afterwards."""

from __future__ import annotations

import threading
import time
import timeit
from functools import partial
from time import perf_counter

import pytest

from amp_lessons import exercises
from amp_lessons.course.exercises.time_step.clockwork_there import Device, SimulatedTime

REAL = {name: value for name, value in vars(time).items() if callable(value)}
EARLY = perf_counter


def _defaults():
    return timeit.timeit.__defaults__, timeit.repeat.__defaults__, timeit.Timer.__init__.__defaults__


REAL_DEFAULTS = _defaults()


def _assert_restored():
    assert {name: vars(time)[name] for name in REAL} == REAL
    assert _defaults() == REAL_DEFAULTS
    assert timeit.default_timer is perf_counter is EARLY is REAL["perf_counter"]


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param(lambda: time.perf_counter(), id="perf_counter"),
        pytest.param(lambda: time.perf_counter_ns() / 1e9, id="perf_counter_ns"),
        pytest.param(lambda: time.time(), id="time"),
        pytest.param(lambda: time.time_ns() / 1e9, id="time_ns"),
        pytest.param(lambda: time.monotonic(), id="monotonic"),
        pytest.param(lambda: timeit.default_timer(), id="default_timer"),
        pytest.param(lambda: perf_counter(), id="imported by name"),
        pytest.param(lambda now=EARLY: now(), id="a default"),
        pytest.param(partial(lambda: EARLY()), id="behind a partial"),
    ],
)
def test_every_clock_shows_the_work_of_the_device_and_a_sleep(clock):
    simulated, device = SimulatedTime(), Device((400.0,))
    device.start(simulated)
    began = REAL["monotonic"]()
    with simulated.shown_to(clock):
        start = clock()
        device()
        time.sleep(600)
        assert clock() - start == pytest.approx(600.4, abs=1e-4)
    assert REAL["monotonic"]() - began < 60
    _assert_restored()


def test_clocks_of_the_processor_stand_still_while_the_device_works():
    simulated, device = SimulatedTime(), Device((400.0,))
    device.start(simulated)
    with simulated.shown_to(None):
        start = time.process_time()
        device()
        assert time.process_time() - start < 1e-5
    assert simulated.readings == {"process_time"}


def test_other_threads_live_by_the_real_time():
    simulated, seen = SimulatedTime(), []
    with simulated.shown_to(None):
        simulated.wait_until(1e6)
        other = threading.Thread(target=lambda: seen.append(time.monotonic()))
        other.start()
        other.join()
        assert time.monotonic() - seen[0] > 9e5


def test_clocks_are_restored_after_an_exception_and_a_replacement():
    def attempt():
        time.perf_counter = None
        raise RuntimeError

    with pytest.raises(RuntimeError), SimulatedTime().shown_to(attempt):
        attempt()
    _assert_restored()


def test_a_clock_that_was_kept_is_real_again_afterwards():
    simulated = SimulatedTime()
    with simulated.shown_to(None):
        kept = time.monotonic
        simulated.wait_until(1e6)
    assert kept() - time.monotonic() < 1


def test_a_negative_sleep_raises_as_ever():
    with SimulatedTime().shown_to(None), pytest.raises(ValueError, match="non-negative"):
        time.sleep(-1)


def _waits_for_ever(fn, *, warmup, repeats, synchronize):
    while True:
        pass


def _waits_for_the_clock(fn, *, warmup, repeats, synchronize):
    until = time.perf_counter() + 1e-3
    while time.perf_counter() < until:
        pass
    return 0.0


def test_the_time_limit_holds():
    report = exercises.check("time_step", _waits_for_ever, time_limit_s=1)
    assert [finding.code for finding in report.findings] == ["time_limit"]


def test_a_simulated_sleep_costs_none_of_the_time_limit():
    def sleeps_long(fn, **arguments):
        time.sleep(3600)
        return solution(fn, **arguments)

    solution = exercises.solution("time_step").function
    assert exercises.check("time_step", sleeps_long).passed


def test_waiting_for_a_clock_ends():
    report = exercises.check("time_step", _waits_for_the_clock)
    assert report.findings[0].code == "wrong_number_of_calls"
