"""What two records of timings may and may not tell apart, tried on noise of which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from amp_lessons.measure.stopwatch import Difference, Timing


def _noise(kind, n, rng):
    """Multiplicative noise around 1 whose median is the same in every run."""
    white = rng.standard_normal(n)
    if kind == "white":
        return np.exp(0.05 * white)
    if kind == "interrupted":
        return np.exp(0.05 * white) * (1 + (rng.random(n) < 0.1) * 5 * rng.random(n))
    if kind == "two clock speeds":
        return 1 + 0.3 * (rng.random(n) < 0.5) + 0.01 * white
    slow = np.zeros(n)  # "neighbours alike"
    for i in range(n):
        slow[i] = 0.9 * slow[i - 1] + math.sqrt(1 - 0.9**2) * white[i] if i else white[i]
    return np.exp(0.05 * slow)


def _share_told_apart(kind, true_ratio, n=200, trials=150):
    rng = np.random.default_rng(0)
    pairs = [(_noise(kind, n, rng), true_ratio * _noise(kind, n, rng)) for _ in range(trials)]
    verdicts = [timed(10 * one).compare(timed(10 * other)).verdict for one, other in pairs]
    return sum(verdict != "no difference" for verdict in verdicts) / trials


def timed(samples_ms):
    return Timing(tuple(samples_ms), "cpu")


@pytest.mark.parametrize(
    ("kind", "ratio"),
    [("white", 1.1), ("interrupted", 1.1), ("two clock speeds", 1.4), ("neighbours alike", 1.4)],
)
def test_a_clear_difference_is_found_and_noise_is_not_called_one(kind, ratio):
    assert _share_told_apart(kind, true_ratio=1.0) <= 0.01
    assert _share_told_apart(kind, ratio) >= 0.95


def test_a_run_that_drifted_is_not_compared_as_if_it_had_stood_still():
    steady, drifting = timed(np.linspace(10.0, 10.1, 40)), timed(np.linspace(9.0, 12.0, 40))
    assert drifting.compare(steady).verdict == "no difference"


def test_differences_below_two_percent_are_not_called():
    one, other = timed((10.0, 10.001) * 20), timed((10.15, 10.151) * 20)
    assert one.compare(other).low > 1
    assert one.compare(other).verdict == "no difference"


def test_a_single_slow_stretch_does_not_pass_for_precision():
    # Most samples agree; those of two rounds say that the machine was twice as slow then.
    assert timed((10.0,) * 100 + (20.0,) * 20).median_interval_ms == (10.0, 20.0)
    # One round may be an accident.
    assert timed((10.0,) * 110 + (20.0,) * 10).median_interval_ms == (10.0, 10.0)


def test_interval_holds_the_true_median_as_often_as_promised():
    rng = np.random.default_rng(1)
    runs = [timed(np.exp(0.1 * rng.standard_normal(60))) for _ in range(1000)]
    hits = sum(low <= 1 <= high for low, high in (run.median_interval_ms for run in runs))
    assert hits / len(runs) >= 0.985


def test_faster_and_slower_mirror_each_other():
    fast, slow = timed((5.0, 5.1, 4.9) * 4), timed((10.0, 10.2, 9.8) * 4)
    assert (fast.compare(slow).verdict, slow.compare(fast).verdict) == ("faster", "slower")
    assert (fast.faster_than(slow), slow.faster_than(fast)) == (True, False)
    assert fast.compare(slow).speedup == pytest.approx(2.0)
    assert fast.compare(slow).speedup * slow.compare(fast).speedup == pytest.approx(1.0)
    assert fast.compare(slow).low <= 2.0 <= fast.compare(slow).high


def test_words_say_what_the_numbers_allow():
    assert str(Difference(1.8, 1.7, 1.9)) == "1.80x as fast (between 1.70x and 1.90x)"
    assert str(Difference(0.004, 0.0004, 0.1)) == "0.004x as fast (between 0.0004x and 0.10x)"
    assert str(Difference(1.05, 0.9, 1.2)) == "no difference (1.05x, anywhere from 0.90x to 1.20x)"
    assert str(timed((10.0, 12.0, 11.0))) == "11 ms (middle half 10.5 to 11.5, 3 samples)"


def test_median_and_spread_of_several_samples_and_of_one():
    timing, single = timed((10.0, 30.0, 11.0, 12.0, 13.0)), timed((10.0,))
    assert (timing.median_ms, timing.quartiles_ms) == (12.0, (11.0, 13.0))
    assert timing.spread_fraction == pytest.approx(2 / 12)
    assert timing.throughput(24) == pytest.approx(2000.0)
    assert single.quartiles_ms == single.median_interval_ms == (10.0, 10.0)


@pytest.mark.parametrize("samples", [(), (0.0,), (1.0, math.nan), (1.0, -1.0), (math.inf,)])
def test_impossible_samples_are_refused(samples):
    with pytest.raises(ValueError, match="at least one sample, and every sample positive and finite"):
        timed(samples)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="one sample cannot tell"):
        timed((10.0,)).compare(timed((20.0, 21.0)))
    with pytest.raises(TypeError, match="another Timing, not with float"):
        timed((1.0, 2.0)).compare(3.0)
