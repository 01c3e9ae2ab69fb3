"""Which statistic of the samples was taken in the place of their median."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.time_step.mistakes import warm_up_counted
from amp_lessons.exercises.time_step.runs import Seen


def mistakes_in_statistic(*runs: Seen) -> Iterator[Finding]:
    """Yield which statistic gives the values of all ``runs``, unless it is the median."""
    wrong = next((seen for seen in runs if not seen.is_median), None)
    if wrong is None:
        return
    if all(seen.time.exact for seen in runs):  # real time is too coarse to tell statistics apart
        yield from _other_statistics(runs, wrong)
    yield _not_the_median("this is not the median", wrong)


def _other_statistics(runs: Sequence[Seen], wrong: Seen) -> Iterator[Finding]:
    if any(all(seen.shows(statistic(seen)) for seen in runs) for statistic in _WITH_WARM_UP):
        yield warm_up_counted(wrong.case)
    for name, of, why in _OTHER_STATISTICS:
        if all(seen.shows(of(seen.samples)) for seen in runs):
            yield _not_the_median(f"this is the {name}, not the median; {why}", wrong)
    if all(_is_mean_of_some(seen) for seen in runs):
        yield _not_the_median("not all samples were used: this is the median or mean of some", wrong)


def _not_the_median(what: str, seen: Seen) -> Finding:
    samples = ", ".join(f"{sample:.4g}" for sample in seen.samples)
    return failed(
        "not_the_median",
        f"{what}. Of {samples} ms the median is {seen.right:.4g}, and {seen.value:.4g} was returned",
        "keep every sample, and return statistics.median(samples)",
    )


def _is_mean_of_some(seen: Seen) -> bool:
    """Whether the value is the mean of what is left when the fastest or slowest samples are dropped."""
    ordered = sorted(seen.samples)
    parts = combinations(range(len(ordered) + 1), 2)
    return any(seen.shows(statistics.fmean(ordered[start:end])) for start, end in parts)


def _quantile(samples: list[float], fraction: float) -> float:
    """Interpolate as NumPy and PyTorch do."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(fraction))


_WITH_WARM_UP: tuple[Callable[[Seen], float], ...] = (
    lambda seen: statistics.median(seen.everything),
    lambda seen: statistics.median(seen.everything[max(seen.case.warmup - 1, 0) :]),
    lambda seen: statistics.median(seen.everything[: len(seen.samples)]),
    lambda seen: statistics.median(seen.everything[max(seen.case.warmup - 1, 0) :][: len(seen.samples)]),
    lambda seen: statistics.fmean(seen.everything),
)
_ONE_CALL = "a single call says little"
_MOVES = "one interrupted call moves it"
_OTHER_STATISTICS: tuple[tuple[str, Callable[[list[float]], float], str], ...] = (
    ("mean", statistics.fmean, _MOVES),
    ("minimum", min, "no step of a training run is that lucky"),
    ("maximum", max, "one interrupted call decides it"),
    ("first sample", lambda samples: samples[0], _ONE_CALL),
    ("last sample", lambda samples: samples[-1], _ONE_CALL),
    (
        "sample in the middle of an unsorted list",
        lambda samples: samples[len(samples) // 2],
        "sort the samples first",
    ),
    (
        "sample in the middle of an unsorted list",
        lambda samples: samples[(len(samples) - 1) // 2],
        "sort the samples first",
    ),
    ("geometric mean", statistics.geometric_mean, _MOVES),
    ("harmonic mean", statistics.harmonic_mean, "fast calls pull it down"),
    *(
        (
            f"{percent} % quantile",
            partial(_quantile, fraction=percent / 100),
            "the median is the 50 % quantile",
        )
        for percent in (5, 10, 20, 25, 75, 80, 90, 95, 99)
    ),
    *(
        (
            f"{percent} % quantile",
            lambda s, i=quarter: statistics.quantiles(s)[i],
            "the median is the 50 % one",
        )
        for percent, quarter in ((25, 0), (75, 2))
    ),
    ("mean of the fastest and the slowest", lambda samples: (min(samples) + max(samples)) / 2, _MOVES),
)
