"""The stopwatch, tried on durations that are known: sleeps, a simulated asynchronous device, a real GPU."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from amp_lessons.measure import stopwatch
from amp_lessons.measure.stopwatch import time_step, time_steps
from tests.real_clock import real_clock

QUICK = {"seconds": 0.1, "warmup": 1}


class Stream(ThreadPoolExecutor):
    """A device like a GPU: `launch` returns at once, the work is done later, `synchronize` waits for it."""

    def launch(self, seconds):
        self.submit(time.sleep, seconds)

    def synchronize(self):
        self.submit(int).result()


class Clock:
    """A clock that only sleeping moves: what is timed by it is known exactly, on the busiest machine."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", clock)
    return clock


@pytest.fixture
def stream():
    with Stream(max_workers=1) as stream:
        yield stream


def test_a_known_sleep_is_recovered(clock):
    timing = time_step(lambda: clock.sleep(0.005), device="cpu", **QUICK)
    assert timing.median_ms == pytest.approx(5.0)
    assert timing.device == "cpu"
    assert len(timing.samples_ms) >= 12


@real_clock
def test_a_known_asynchronous_delay_is_recovered(stream):
    step = partial(stream.launch, 0.005)
    timing = time_step(step, device="cpu", synchronize=stream.synchronize, **QUICK)
    assert min(timing.samples_ms) == pytest.approx(5.0, rel=0.15)  # other work only makes samples longer
    # The mistake that the lesson shows: without waiting, only the launch is timed.
    start = time.perf_counter()
    step()
    launch_ms = (time.perf_counter() - start) * 1e3
    stream.synchronize()
    assert launch_ms < timing.median_ms / 5


@real_clock
def test_pending_work_is_not_charged_to_the_first_sample(stream):
    stream.launch(0.2)
    options = {"synchronize": stream.synchronize, "warmup": 0, "seconds": 0.02}
    timing = time_step(lambda: stream.launch(0.002), device="cpu", **options)
    assert timing.first_call_ms < 100


@real_clock
def test_the_same_function_twice_is_no_difference():
    x = torch.randn(64, 64)
    timings = time_steps({"once": lambda: x @ x, "again": lambda: x @ x}, device="cpu", seconds=0.2)
    assert timings["once"].compare(timings["again"]).verdict == "no difference"


def test_the_same_sleep_is_no_difference_and_twice_the_work_is_slower(clock):
    once, again = (time_step(lambda: clock.sleep(0.004), device="cpu", **QUICK) for _ in range(2))
    assert once.compare(again).verdict == "no difference"
    steps = {"one": lambda: clock.sleep(0.002), "two": lambda: clock.sleep(0.004)}
    timings = time_steps(steps, device="cpu", seconds=0.4)
    assert timings["one"].faster_than(timings["two"])
    assert timings["one"].compare(timings["two"]).speedup == pytest.approx(2.0)


def test_what_happens_once_is_kept_apart(clock):
    calls = itertools.count()
    timing = time_step(lambda: clock.sleep(0.002 if next(calls) else 0.1), device="cpu", **QUICK)
    assert timing.first_call_ms == pytest.approx(100)
    assert max(timing.samples_ms) == pytest.approx(2)


def test_functions_take_turns():
    order = []

    def step(name):
        order.append(name)
        time.sleep(0.001)

    time_steps({name: partial(step, name) for name in "ab"}, device="cpu", warmup=0, seconds=0.05)
    order = order[2:]  # the first calls
    size = len(order) // stopwatch.ROUNDS
    rounds = [order[i : i + size] for i in range(0, len(order), size)]
    assert len(rounds) == stopwatch.ROUNDS
    turns = {"".join(name for name, _ in itertools.groupby(each)) for each in rounds}
    assert turns == {"ab", "ba"}  # in no fixed order, which a regular disturbance could follow


@real_clock
def test_short_calls_are_counted_by_the_hundred():
    calls = itertools.count()
    timing = time_step(lambda: next(calls), device="cpu", **QUICK)
    assert timing.calls_per_sample > 50
    assert timing.median_ms < 0.01


def test_at_most_about_max_samples_and_never_fewer_than_twelve(clock):
    many = time_step(lambda: clock.sleep(1e-4), device="cpu", seconds=5, max_samples=48, warmup=0)
    few = time_step(lambda: clock.sleep(0.01), device="cpu", seconds=1e-6, warmup=0)
    assert len(many.samples_ms) == 48
    assert len(few.samples_ms) == 12


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"fn": 3.0}, TypeError, "fn is a function without arguments, not float 3.0"),
        ({"device": "meta"}, ValueError, "unknown device 'meta'"),
        ({"device": "cpu:7"}, ValueError, "there is no cpu:7 here; the last one is cpu:0"),
        ({"seconds": 0}, ValueError, "seconds is a number above 0, not int 0"),
        ({"seconds": float("nan")}, ValueError, "seconds is a number above 0, not float"),
        ({"warmup": -1}, ValueError, "warmup is a whole number of at least 0, not int -1"),
        ({"max_samples": 0}, ValueError, "max_samples is a whole number of at least 1, not int 0"),
    ],
)
def test_bad_arguments_are_named(kwargs, error, words):
    with pytest.raises(error, match=words):
        time_step(**{"fn": lambda: None, "device": "cpu", **kwargs})


def test_an_exception_of_the_step_reaches_the_caller_and_a_missing_gpu_is_named_before_it():
    with pytest.raises(ZeroDivisionError):
        time_step(lambda: 1 / 0, device="cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="there is no cuda device here"):
            time_step(lambda: 1 / 0, device="cuda")


@real_clock
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_known_delay_on_the_gpu_is_recovered():
    spin = partial(torch.cuda._sleep, 10_000_000)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(20):
        spin()
    start.record()
    spin()
    end.record()
    end.synchronize()
    timing = time_step(spin, device="cuda", seconds=0.5)
    assert timing.median_ms == pytest.approx(start.elapsed_time(end), rel=0.05)
    assert timing.compare(time_step(spin, device="cuda", seconds=0.5)).verdict == "no difference"
