"""Is a softmax right for scores of any size, and does it round only once?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Hold softmax and logsumexp of many kinds of scores against fp64."""
    softmax_of = bed.function(worker, "softmax_with_logsumexp", torch.zeros(1), 0)
    for case in _cases(draw):
        softmax, logsumexp = _returned(softmax_of, case)
        _require_near(softmax, case.softmax, case, "softmax")
        _require_near(logsumexp, case.logsumexp, case, "logsumexp")
    said = "softmax and logsumexp are right for scores of any size, and where some are masked"
    yield passed("any_size", said)
    yield passed("rounded_once", "in 16 bits the softmax is rounded once, and logsumexp is in fp32")


@dataclass(frozen=True)
class Case:
    """Scores, and what a wrong answer for them means: ``code`` and ``hint``; ``what`` says which they are."""

    what: str
    scores: Tensor
    dim: int
    code: str
    hint: str

    @property
    def softmax(self) -> Tensor:
        """The answer in fp64."""
        return self.scores.double().softmax(self.dim)

    @property
    def logsumexp(self) -> Tensor:
        """The answer in fp64."""
        return self.scores.double().logsumexp(self.dim)


_PLAIN = "softmax is exp(scores) over its sum along dim; logsumexp gets back what was subtracted"
_SUBTRACT = (
    "subtract from each row its own largest score: that changes no softmax, and no exponential is above 1; "
    "logsumexp gets it back after the log"
)
_MASK = "leave -inf in place: exp(-inf - largest) is 0, and any number in its place may be the largest"
_WIDE = "read the scores into fp32, compute there, and round the softmax at the end"


def _cases(draw: torch.Generator) -> list[Case]:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    apart = torch.stack([normal(6), normal(6) - 700, normal(6) - 3000])
    masked = normal(4, 9).masked_fill(torch.rand(4, 9, generator=draw) < 0.4, -torch.inf)
    masked[:, 3] = 0.5
    return [
        Case("small scores in fp32", normal(4, 7), 1, "wrong_softmax", _PLAIN),
        Case("scores around 1000", normal(3, 5) + 1000, -1, "exp_overflows", _SUBTRACT),
        Case("scores around -1000", normal(3, 5) - 1000, -1, "exp_underflows", _SUBTRACT),
        Case("columns that are 700 and 3000 apart", apart.T.contiguous(), 0, "not_by_row", _SUBTRACT),
        Case("scores of which some are masked by -inf", masked, 1, "mask_spoils_softmax", _SUBTRACT),
        Case("scores around -30,000, some masked by -inf", masked - 3e4, 1, "mask_spoils_softmax", _MASK),
        Case(
            "a row of 70,000 equal fp16 scores", torch.zeros(1, 70_000).half(), 1, "rounded_on_the_way", _WIDE
        ),
        Case("fp16 scores between -20 and 20", (normal(8, 400) * 6).half(), 1, "rounded_on_the_way", _WIDE),
        Case("fp16 scores around 200", (200 + 8 * normal(5, 64)).half(), 1, "rounded_on_the_way", _WIDE),
        Case(
            "bf16 scores in three dimensions",
            (normal(2, 50, 3) * 4).bfloat16(),
            1,
            "rounded_on_the_way",
            _WIDE,
        ),
    ]


_NOTING = "amp_lessons.course.exercises.bed_there:call_noting_operations"
_WHOLE = ("softmax", "log_softmax", "logsumexp", "special_logsumexp", "logaddexp", "logcumsumexp")


def _returned(function: bed.LearnersFunction, case: Case) -> tuple[Tensor, Tensor]:
    """Return softmax and logsumexp; reject another shape or dtype than was asked for."""
    given = case.scores.clone()
    (returned, called), _ = function.called_by(_NOTING, given, case.dim, about=f"for {case.what}")
    for name in _WHOLE:
        if name in called:
            said = f"{name} of PyTorch's did the work"
            bed.reject("uses_torchs_softmax", said, "write it out of exp, log, sums and a maximum")
    hint = "subtract into a new tensor: a - b, not a -= b"
    bed.require_unchanged([given], [case.scores], "the scores", hint)
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        bed.reject_type("two tensors were", returned, "return softmax, logsumexp")
    hint, what = "softmax keeps shape and dtype; logsumexp drops dim, in fp32", case.what
    dtype, shape, fewer = case.scores.dtype, case.scores.shape, case.logsumexp.shape
    softmax = bed.require_tensor(returned[0], dtype, shape, f"as softmax of {what}", hint)
    logsumexp = bed.require_tensor(returned[1], torch.float32, fewer, f"as logsumexp of {what}", hint)
    return softmax, logsumexp


_EXP_IN_FP32 = 1e-4  # next to 1000 neighbours in fp32 are 6e-5 apart, and exp makes a relative error of that
_NEIGHBOURS = 2.0**-22  # of a score, twice that: a logsumexp is rounded as well before it is subtracted


def _require_near(seen: Tensor, right: Tensor, case: Case, what: str) -> None:
    """Reject what is further off than one rounding to its dtype, and than exp of a difference in fp32."""
    info = torch.finfo(seen.dtype)
    largest = float(case.scores.double().abs().nan_to_num(0, 0, 0).max())
    exp_in_fp32 = max(_EXP_IN_FP32, _NEIGHBOURS * largest)
    tolerance = exp_in_fp32 + info.eps / 2  # what rounding to nearest costs
    if torch.allclose(seen.double(), right, rtol=tolerance, atol=info.smallest_normal * info.eps):
        return
    off = (seen.double() - right).abs() - tolerance * right.abs()
    at = off.nan_to_num(torch.inf).argmax()
    said = f"{what} is {seen.flatten()[at]:.6g} where {right.flatten()[at]:.6g} is right, for {case.what}"
    bed.reject(case.code, said, case.hint)
