"""Wrong and right ways to time a step."""

from __future__ import annotations

import statistics
import time
import timeit
from datetime import datetime, timedelta
from itertools import pairwise
from timeit import default_timer

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("time_step")
wrong = TABLE.mutant
right = TABLE.variant

WARM_UP = "    for _ in range(warmup):\n        fn()\n"
BEFORE = "        synchronize()\n        start = time.perf_counter()\n"
START = "        start = time.perf_counter()\n"
ELAPSED = "time.perf_counter() - start"
AFTER = "        fn()\n        synchronize()\n"
STOP = "        samples_ms.append((time.perf_counter() - start) * 1e3)\n"
RETURN = "    return statistics.median(samples_ms)\n"

wrong("no_warm_up", "wrong_number_of_calls", "fn was called 4 times instead of 6", (WARM_UP, ""))
wrong("warm_up_once", "wrong_number_of_calls", "instead of 6", ("range(warmup)", "range(1)"))
wrong("one_sample", "wrong_number_of_calls", "instead of 6", ("range(repeats)", "range(1)"))
wrong(
    "warm_up_timed",
    "not_the_median",
    "this is not the median",
    (WARM_UP, ""),
    ("range(repeats)", "range(warmup + repeats)"),
)
wrong("seconds", "wrong_unit", "1e-03 times", (" * 1e3", ""))
wrong("divided_by_a_thousand", "wrong_unit", "1e-06 times", ("1e3", "1e-3"))
wrong(
    "calls_per_second",
    "wrong_time",
    "ms would be right",
    ("return statistics.median(samples_ms)", "return 1e3 / statistics.median(samples_ms)"),
)
wrong("microseconds", "wrong_unit", "1e+03 times", ("1e3", "1e6"))
wrong("mean", "not_the_median", "this is not the median", ("statistics.median", "statistics.mean"))
wrong("fastest", "not_the_median", "this is not the median", (RETURN, "    return min(samples_ms)\n"))
wrong("slowest", "not_the_median", "this is not the median", (RETURN, "    return max(samples_ms)\n"))
wrong("last_sample", "not_the_median", "this is not the median", (RETURN, "    return samples_ms[-1]\n"))
wrong(
    "unsorted", "not_the_median", "this is not the median", (RETURN, "    return samples_ms[repeats // 2]\n")
)
wrong("first_sample", "not_the_median", "this is not the median", (RETURN, "    return samples_ms[0]\n"))
wrong("harmonic", "not_the_median", "not the median", ("statistics.median", "statistics.harmonic_mean"))
wrong("geometric", "not_the_median", "not the median", ("statistics.median", "statistics.geometric_mean"))
wrong(
    "lower_quartile",
    "not_the_median",
    "this is not the median",
    ("median(samples_ms)", "quantiles(samples_ms)[0]"),
)
wrong(
    "torch_quartile",
    "not_the_median",
    "this is not the median",
    (RETURN, "    return __import__('torch').tensor(samples_ms).quantile(0.25).item()\n"),
)
wrong(
    "first_sample_dropped",
    "not_the_median",
    "this is not the median",
    (RETURN, "    return statistics.median(samples_ms[1:] or samples_ms)\n"),
)
wrong(
    "trimmed_mean",
    "not_the_median",
    "this is not the median",
    (RETURN, "    inner = sorted(samples_ms)[1:-1]\n    return sum(inner) / len(inner) if inner else 0\n"),
)
wrong(
    "outliers_dropped",
    "not_the_median",
    "this is not the median",
    (
        RETURN,
        "    kept = [t for t in samples_ms if t < 4 * min(samples_ms)]\n    return statistics.mean(kept)\n",
    ),
)
wrong(
    "outliers_clipped",
    "not_the_median",
    "this is not the median",
    (
        RETURN,
        "    limit = 2 * statistics.median(samples_ms)\n"
        "    return statistics.mean(min(t, limit) for t in samples_ms)\n",
    ),
)
KEEP_LAST = "    samples_ms = []\n    for _ in range(repeats + (warmup > 0)):\n"
wrong(
    "last_warm_up_kept",
    "not_the_median",
    "this is not the median",
    ("range(warmup)", "range(warmup - 1)"),
    ("    samples_ms = []\n    for _ in range(repeats):\n", KEEP_LAST),
)
wrong("divided_by_repeats", "wrong_time", "ms would be right", (RETURN, RETURN[:-1] + " / repeats\n"))
wrong("constant", "wrong_time", "9 was returned", (RETURN, "    return 9.0\n"))
wrong("total", "wrong_time", "ms would be right", (RETURN, "    return sum(samples_ms)\n"))
wrong("no_sync_before", "no_sync_before", "earlier work", (BEFORE, START))
wrong("no_sync_after", "no_sync_after", "still working", (AFTER, "        fn()\n"))
wrong(
    "never_synchronized",
    "no_sync_after",
    "still working",
    (BEFORE, START),
    (AFTER, "        fn()\n"),
)
wrong(
    "clock_before_sync",
    "no_sync_before",
    "earlier work",
    (BEFORE, START + "        synchronize()\n"),
)
wrong("sync_after_reading", "no_sync_after", "still working", (AFTER + STOP, "        fn()\n" + STOP))
wrong(
    "processor_time",
    "wrong_time",
    "ms would be right",
    (START, START.replace("perf_counter", "process_time")),
    (ELAPSED, "time.process_time() - start"),
)
wrong("end_minus_start", "not_a_time", "no duration", (ELAPSED, "start - time.perf_counter()"))
wrong("returns_nothing", "not_a_time", "None is no duration", (RETURN, ""))
wrong("returns_samples", "not_a_time", "list", (RETURN, "    return samples_ms\n"))
wrong("returns_nan", "not_a_time", "nan", (RETURN, "    return float('nan')\n"))
wrong("forgets_import", "raised", "NameError", ("import statistics\n", ""))


@TABLE.mistake("not_the_median", "this is not the median")
def one_sync_for_all(fn, *, warmup, repeats, synchronize):
    for _ in range(warmup):
        fn()
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        fn()
    synchronize()
    return (time.perf_counter() - start) * 1e3 / repeats


@TABLE.mistake("no_sync_after", "still working")
def synchronizes_cuda_only(fn, *, warmup, repeats, synchronize):
    for _ in range(warmup):
        fn()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        fn()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples)


@TABLE.mistake("signature", "synchronize")
def without_synchronize(fn, warmup, repeats):
    return 1.0


right("the_solution")
right(
    "by_the_wall_clock",
    (START, START.replace("perf_counter", "time")),
    (ELAPSED, "time.time() - start"),
    notes=("adjustable_clock",),
)
right("monotonic", (START, START.replace("perf_counter", "monotonic")), (ELAPSED, "time.monotonic() - start"))
right("rounded", (RETURN, "    return round(statistics.median(samples_ms), 1)\n"))
right("rounded_to_two_digits", (RETURN, "    return round(statistics.median(samples_ms), 2)\n"))
right("rounded_to_microseconds", (RETURN, "    return round(statistics.median(samples_ms), 3)\n"))
right("the_upper_middle", ("statistics.median", "statistics.median_high"), notes=("not_averaged",))
right(
    "clock_imported_by_name",
    ("import time\n", "from time import perf_counter as clock\n"),
    (START, START.replace("time.perf_counter", "clock")),
    (ELAPSED, "clock() - start"),
)
right(
    "clock_as_a_default",
    ("synchronize):", "synchronize, clock=time.perf_counter):"),
    (START, START.replace("time.perf_counter", "clock")),
    (ELAPSED, "clock() - start"),
)
right(
    "clock_out_of_reach",
    ("import time\n", "import time\nCLOCKS = [time.perf_counter]\n"),
    (START, START.replace("time.perf_counter", "CLOCKS[0]")),
    (ELAPSED, "CLOCKS[0]() - start"),
)
wrong(
    "mean_by_a_clock_out_of_reach",
    "not_the_median",
    "this is not the median",
    ("import time\n", "import time\nCLOCKS = [time.perf_counter]\n"),
    (START, START.replace("time.perf_counter", "CLOCKS[0]")),
    (ELAPSED, "CLOCKS[0]() - start"),
    ("statistics.median", "statistics.mean"),
)
right(
    "a_tensor",
    (RETURN, "    return __import__('torch').tensor(samples_ms).quantile(0.5)\n"),
    notes=("returned_a_tensor",),
)
right(
    "a_numpy_float",
    (RETURN, "    return __import__('numpy').float32(__import__('numpy').median(samples_ms))\n"),
    notes=("not_a_float",),
)
right(
    "the_lower_middle",
    (RETURN, "    return sorted(samples_ms)[(repeats - 1) // 2]\n"),
    notes=("not_averaged",),
)
right("sync_after_each_warm_up_too", (WARM_UP, WARM_UP + "        synchronize()\n"))


@TABLE.correct()
def in_nanoseconds(fn, *, warmup, repeats, synchronize):
    def sample():
        start = time.perf_counter_ns()
        fn()
        synchronize()
        return time.perf_counter_ns() - start

    [fn() for _ in range(warmup)]
    synchronize()
    return statistics.median([sample() for _ in range(repeats)]) / 1e6


@TABLE.correct()
def with_timeit(fn, *, warmup, repeats, synchronize):
    def step():
        fn()
        synchronize()

    for _ in range(warmup):
        fn()
    return statistics.median(timeit.repeat(step, setup=synchronize, number=1, repeat=repeats)) * 1e3


@TABLE.correct()
def as_a_class_would(fn, warmup, repeats, synchronize):
    edges = []
    for _ in range(warmup + repeats):
        synchronize()
        edges.append(time.monotonic())
        fn()
    synchronize()
    edges.append(time.monotonic())
    kept = edges[warmup:]
    samples = sorted(1e3 * (after - before) for before, after in pairwise(kept))
    return (samples[(len(samples) - 1) // 2] + samples[len(samples) // 2]) / 2


@TABLE.correct()
def with_a_default_timer(fn, *, warmup, repeats, synchronize):
    samples = []
    for _ in range(warmup + repeats):
        synchronize()
        start = default_timer()
        fn()
        synchronize()
        samples.append((default_timer() - start) * 1e3)
    return statistics.median(samples[warmup:])


def _closed_over(clock):
    def closed_over(fn, *, warmup, repeats, synchronize):
        samples = []
        for _ in range(warmup + repeats):
            synchronize()
            start = clock()
            fn()
            synchronize()
            samples.append((clock() - start) * 1e3)
        return statistics.median(samples[warmup:])

    return closed_over


TABLE.correct()(_closed_over(time.perf_counter))


@TABLE.correct()
def by_the_calendar(fn, *, warmup, repeats, synchronize):
    samples = []
    for _ in range(warmup + repeats):
        synchronize()
        start = datetime.now()
        fn()
        synchronize()
        samples.append((datetime.now() - start) / timedelta(milliseconds=1))
    return statistics.median(samples[warmup:])


@TABLE.mistake("wrong_time", "ms would be right")
def by_the_thread(fn, *, warmup, repeats, synchronize):
    samples = []
    for _ in range(warmup + repeats):
        synchronize()
        start = time.thread_time_ns()
        fn()
        synchronize()
        samples.append((time.thread_time_ns() - start) / 1e6)
    return statistics.median(samples[warmup:])


@TABLE.mistake("wrong_time", "ms would be right")
def sleeps_in_between(fn, *, warmup, repeats, synchronize):
    samples = []
    for _ in range(warmup + repeats):
        synchronize()
        start = time.perf_counter()
        fn()
        time.sleep(0.003)
        synchronize()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples[warmup:])


wrong(
    "milliseconds_cut_off",
    "wrong_time",
    "4 was returned",
    (RETURN, "    return float(int(statistics.median(samples_ms)))\n"),
)
wrong(
    "samples_rounded",
    "wrong_time",
    "5 was returned",
    ("(time.perf_counter() - start) * 1e3", "round((time.perf_counter() - start) * 1e3)"),
)
