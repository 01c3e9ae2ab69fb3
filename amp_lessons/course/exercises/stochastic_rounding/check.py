"""Is a random rounding to bf16 right on average, one of two neighbours each time, and repeatable?"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from amp_lessons._base.text.words import counted
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed

_DRAWS = 20_000
_MANY = 2**20  # of which noise that is 2**16 now and then moves sixteen
_ALIKE = 0.6  # of two thousand pairs: with draws of their own half are alike, and never so many
_DEVIATIONS = 5.0  # one right attempt in three million is further off, in a case; the seeds are fixed


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Round numbers of many kinds once, and some of them many times."""
    rounding = bed.function(worker, "round_stochastically", torch.zeros(1), torch.Generator())
    _require_exact_stays(rounding)
    _require_special_stay(rounding)
    _require_neighbours(rounding)
    for what, number in _CASES:
        _require_odds(rounding, what, number)
    _require_draws_of_its_own(rounding)
    said = "the mean of many roundings is the number itself, also of negative and tiny ones"
    yield passed("unbiased", said)
    yield passed("neighbours", "every number becomes one of its two neighbours, and what bf16 has stays")
    yield passed("repeatable", "every element has a draw of its own, all of them from the generator given")


_CASES = (
    ("-3 and nine tenths of the way to the next", -3 - 0.9 * 2.0**-6),
    ("1 and an eighth of the way to the next", 1 + 2.0**-10),
    ("1 and half of the way to the next", 1 + 2.0**-8),
    ("a number just below 2", 2 - 2.0**-9),
    ("65,521", 65521.0),
    ("a quarter of the way from 0 to the smallest bf16", 2.0**-135),
)


def _rounded(function: bed.LearnersFunction, x: Tensor, seed: int, what: str) -> Tensor:
    """Return what was returned, a bf16 tensor of the shape of ``x``, which must stay as it is."""
    given = x.clone()
    result = function(given, torch.Generator().manual_seed(seed), about=f"for {what}")
    bed.require_tensor(result, torch.bfloat16, x.shape, f"for {what}", "end with .to(torch.bfloat16)")
    bed.require_unchanged([given], [x], "the numbers", "compute with new tensors: a + b, not a += b")
    return result


def _require_exact_stays(function: bed.LearnersFunction) -> None:
    few = torch.tensor([0.0, 1.0, -2.5, 2.0**-126, 2.0**-133, -(2.0**127), 300.0, 1.9921875])
    for seed, x in enumerate([few, few, few, torch.ones(_MANY)]):
        result = _rounded(function, x, seed, "numbers that bf16 has").float()
        if not torch.equal(result, x):
            at = int((result != x).nonzero()[0])
            bed.reject(
                "exact_changed",
                f"{x[at]:g} became {result[at]:g}, and bf16 has the first: there is nothing to round",
                "noise on the bits is from 0 to 2**16 - 1, not to 2**16, and after it the lower 16 bits are "
                "cut off, not rounded to nearest",
            )


def _require_special_stay(function: bed.LearnersFunction) -> None:
    bits = torch.tensor([0x7F800000, -0x800000, 0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32)
    x = bits.view(torch.float32)
    for seed in range(5):
        result = _rounded(function, x, seed, "inf and NaN").float()
        if not (torch.equal(result[:2], x[:2]) and bool(result[2:].isnan().all())):
            said = f"inf, -inf and three NaN became {[round(v, 3) for v in result.tolist()]}"
            hint = "noise in the bits of a NaN may carry into its sign: leave alone what is not finite"
            bed.reject("special_lost", said, hint)


def _neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bf16 numbers next to each number, towards zero and away from it, as fp32."""
    cut = x.view(torch.int32) & -(2**16)
    return cut.view(torch.float32), (cut + 2**16).view(torch.float32)


def _require_neighbours(function: bed.LearnersFunction) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 50, generator=draw) * torch.randn(40, 50, generator=draw).mul(8).exp()
    lower, upper = _neighbours(x)
    result = _rounded(function, x, 1, "numbers of many sizes").float()
    strangers = ((result != lower) & (result != upper)).nonzero()
    if len(strangers):
        at = tuple(strangers[0].tolist())
        bed.reject(
            "no_neighbour",
            f"{x[at]:.7g} became {result[at]:.7g}, and its neighbours in bf16 are {lower[at]:.7g} and "
            f"{upper[at]:.7g}",
            "the noise is as large as the distance between the two, at every exponent: add it to the bits",
        )


def _require_odds(function: bed.LearnersFunction, what: str, number: float) -> None:
    """Reject what does not go up as often as the number lies on the way up, within the noise of the draws."""
    x = torch.full((_DRAWS,), number)
    lower, upper = (float(each[0]) for each in _neighbours(x))
    result = _rounded(function, x, 2, what).double()
    wanted, seen = (number - lower) / (upper - lower), float(((result - lower) / (upper - lower)).mean())
    if abs(seen - wanted) <= _DEVIATIONS * math.sqrt(wanted * (1 - wanted) / _DRAWS):
        return
    bed.reject(
        "biased",
        f"{what} went away from zero in {seen:.1%} of {_DRAWS:,} roundings, and {wanted:.1%} is right",
        "draw a number for each element: the odds are the part that is cut off, of 2**16, and rounding to "
        "nearest must not come after the noise",
    )


def _require_draws_of_its_own(function: bed.LearnersFunction) -> None:
    x, what = torch.full((64, 64), 1 + 2.0**-8), "64 × 64 equal numbers"
    torch.manual_seed(0)
    once = _rounded(function, x, 3, what)
    up = (once.flatten() > 1).double()
    pairs = {apart: (up[apart:] == up[:-apart]).double().mean() for apart in range(1, up.numel() // 2 + 1)}
    apart = max(pairs, key=lambda each: float(pairs[each]))
    if pairs[apart] > _ALIKE:
        said = f"of {what}, those that lie {counted(apart, 'place')} apart were rounded the same way in "
        said += f"{pairs[apart]:.0%} of all pairs, not in half of them"
        bed.reject("one_draw_for_all", said, "draw as many numbers as x has")
    torch.manual_seed(1)
    again = _rounded(function, x, 3, what)
    further = torch.Generator().manual_seed(3)
    torch.rand(1, generator=further)
    other = function(x, further, about=f"for {what}")
    hint = "pass generator=generator to what draws, as it is: it was seeded by whoever calls"
    if not torch.equal(once, again):
        bed.reject("generator_unused", "the same state of the generator gave another result", hint)
    if torch.equal(once, other):
        bed.reject("generator_unused", "another state of the generator gave the same result", hint)
