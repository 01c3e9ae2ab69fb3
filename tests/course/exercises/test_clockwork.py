"""Whatever clock an attempt at time_step reads, it shows the simulated time; no real time passes."""

from __future__ import annotations

import statistics
import time
import timeit
from datetime import datetime
from functools import partial
from time import perf_counter

import pytest

from amp_lessons import exercises

EARLY = [perf_counter]


def attempt_by(clock, sleep_s=0.0):
    """Return a right attempt that reads a clock in seconds, and sleeps before the first sample."""

    def time_step(fn, *, warmup, repeats, synchronize):
        def sample():
            synchronize()
            start = clock()
            fn()
            synchronize()
            return (clock() - start) * 1e3

        [fn() for _ in range(warmup)]
        time.sleep(sleep_s)
        return statistics.median(sample() for _ in range(repeats))

    return time_step


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param(lambda: time.perf_counter(), id="perf_counter"),
        pytest.param(lambda: time.perf_counter_ns() / 1e9, id="perf_counter_ns"),
        pytest.param(lambda: time.time(), id="time"),
        pytest.param(lambda: time.time_ns() / 1e9, id="time_ns"),
        pytest.param(lambda: time.monotonic(), id="monotonic"),
        pytest.param(lambda: time.clock_gettime(time.CLOCK_MONOTONIC), id="clock_gettime"),
        pytest.param(lambda: timeit.default_timer(), id="default_timer"),
        pytest.param(lambda: datetime.now().timestamp(), id="datetime"),
        pytest.param(lambda: datetime.today().timestamp(), id="today"),
        pytest.param(lambda: perf_counter(), id="imported by name"),
        pytest.param(lambda now=perf_counter: now(), id="a default"),
        pytest.param(lambda: EARLY[0](), id="in a list"),
        pytest.param(partial(lambda: EARLY[0]()), id="behind a partial"),
        pytest.param(perf_counter, id="closed over"),
    ],
)
def test_every_clock_shows_the_work_of_the_device(clock):
    assert exercises.check("time_step", attempt_by(clock)).passed


@pytest.mark.parametrize("clock", ["process_time", "thread_time"])
def test_clocks_of_the_processor_stand_still_while_the_device_works(clock):
    report = exercises.check("time_step", attempt_by(lambda: getattr(time, clock)()))
    assert report.findings[0].message.startswith("for a step of")
    assert "ms that returns when it is done, 0.0001 was returned" in report.findings[0].message


def test_a_sleep_costs_nothing_real_and_is_seen_by_the_clock():
    assert exercises.check("time_step", attempt_by(perf_counter, sleep_s=3600)).passed
    report = exercises.check("time_step", attempt_by(lambda: time.sleep(1) or perf_counter()))
    assert "1005 was returned" in report.findings[0].message


def test_a_negative_sleep_raises_as_ever():
    report = exercises.check("time_step", attempt_by(perf_counter, sleep_s=-1))
    assert "sleep length must be non-negative" in report.findings[0].message


def test_the_clocks_of_whoever_asks_stay_real():
    before = time.perf_counter, timeit.default_timer, datetime
    assert exercises.check("time_step", attempt_by(perf_counter)).passed
    assert before == (time.perf_counter, timeit.default_timer, datetime)


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


def test_waiting_for_a_clock_ends():
    report = exercises.check("time_step", _waits_for_the_clock)
    assert report.findings[0].code == "wrong_number_of_calls"
