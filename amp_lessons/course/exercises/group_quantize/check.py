"""INT4 by groups: what codes and scales stand for is held against the weights, in fp64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.formats.dtypes import dtype_name

_HALF_A_STEP = 0.501  # of a scale: a thousandth for a quotient that is rounded to fp32
_LANDS_FROM = 6.9  # 7, and a scale that is rounded to bf16
_SCALE_ROUNDED = 2.0**-7  # relative, to bf16


@dataclass(frozen=True)
class GroupCase:
    """A matrix ``weight`` (out, in), and how many inputs share a scale."""

    name: str
    weight: Tensor
    group_size: int

    @property
    def what(self) -> str:
        """The weights, their dtype and the size of groups, as a message names them."""
        return f"for {self.name} in {dtype_name(self.weight.dtype)}, groups of {self.group_size}"

    def in_groups(self, matrix: Tensor) -> Tensor:
        """Return a matrix like the weights as (out, groups, size), zeros where the last group is shorter."""
        return pad(matrix.double(), (0, -matrix.shape[1] % self.group_size)).unflatten(
            1, (-1, self.group_size)
        )


def cases(draw: torch.Generator) -> Iterator[GroupCase]:
    """Draw what to quantise, from the simplest to the last corner."""

    def drawn(rows: int, columns: int) -> Tensor:
        """Draw weights, the rows of different sizes, with an outlier in each."""
        weight = torch.randn(rows, columns, generator=draw) * torch.rand(rows, 1, generator=draw).add(0.2)
        weight[:, int(torch.randint(columns, (1,), generator=draw))] *= 4
        return weight / weight.abs().max() * 2.9

    yield GroupCase("a square matrix", drawn(64, 64), 16)  # where a wrong dimension has the right shape
    yield GroupCase("weights", drawn(16, 96), 32)
    yield GroupCase("weights, the largest of each row negative", -drawn(16, 96).abs(), 32)
    yield GroupCase("weights", drawn(24, 128).bfloat16(), 32)
    yield GroupCase("weights", drawn(24, 128).half(), 64)
    yield GroupCase("a transposed matrix", drawn(96, 20).t(), 32)
    yield GroupCase("rows whose last group is shorter", drawn(12, 70), 32)
    yield GroupCase("rows shorter than a group", drawn(12, 20), 128)
    yield GroupCase("weights up to 3e38", drawn(4, 64) * 1e38, 32)
    yield GroupCase("weights up to 1e-27", drawn(4, 64) * 5e-28, 32)  # the least group is above 1e-29
    zeros = drawn(6, 96)
    zeros[2, 32:64], zeros[4] = 0.0, 0.0
    yield GroupCase("groups of zeros", zeros, 32)


# --- the check


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have matrices quantised; codes that do not stand for the weights are rejected by what leads there."""
    group_quantize = bed.function(worker, "group_quantize", torch.zeros(2, 4), 2)
    for case in cases(draw):
        codes, scales = _answer(group_quantize, case)
        bed.require_none(_mistakes(codes, scales, case))
    for value in (torch.inf, torch.nan):
        weight = torch.randn(4, 64, generator=draw)
        weight[1, 40] = value
        raised = group_quantize.exception(weight, 32)
        if raised is None:
            said = f"a matrix with {value} was quantised: no code stands for it, and nobody will see it again"
            bed.reject("not_finite_quantised", said, "raise ValueError unless weight.isfinite().all()")
        if "ValueError" not in raised.kinds:
            raise bed.Rejected(bed.said_of(raised, f"for weights with {value}, where ValueError was asked"))
    yield passed("half_a_scale", "codes · scales are the weights, to half of a scale")
    yield passed("scale_per_group", "each group along the inputs has the scale of its own largest magnitude")
    yield passed("not_finite_refused", "weights that are inf or NaN are refused")


def _answer(group_quantize: bed.LearnersFunction, case: GroupCase) -> tuple[Tensor, Tensor]:
    """Return codes (out, in) and scales (out, groups) in fp64, of the types that were asked for."""
    weight = case.weight.clone()
    returned = group_quantize(weight, case.group_size, about=case.what)
    bed.require_unchanged([weight], [case.weight], "the weights", "compute with a new tensor")
    rows, columns = weight.shape
    hint = "codes are int8, scales bf16: pad the inputs to whole groups, reshape to (out, groups, size), and "
    hint += "cut off the padding"
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        bed.reject_type("a pair of codes and scales was", returned, hint, case.what)
    groups = -(-columns // case.group_size)
    codes = bed.require_tensor(returned[0], torch.int8, (rows, columns), f"as codes {case.what}", hint)
    scales = bed.require_tensor(returned[1], torch.bfloat16, (rows, groups), f"as scales {case.what}", hint)
    return codes.double(), scales.double()


# --- what is wrong with codes and scales


def _mistakes(codes: Tensor, scales: Tensor, case: GroupCase) -> Iterator[Finding]:
    """Yield what is wrong, the root cause first: scales before the codes that follow from them."""
    what, groups = case.what, case.in_groups(case.weight)
    amax, quotients = groups.abs().amax(-1), groups / scales[..., None]
    if codes.min() < -8 or codes.max() > 7:
        said = f"{what}: codes run from {codes.min():g} to {codes.max():g}, and 4 bits have -8 to 7"
        hint = "divide the largest magnitude by 7, and clamp to (-8, 7) before the cast, which wraps around"
        yield failed("codes_out_of_range", said, hint)
    if not (scales[amax == 0] > 0).all():
        common = "groups that are all zero are common in pruned and in padded weights"
        yield mistakes.zero_amax(what, "a group of zeros has a scale of 0 or NaN", common=common)
    if not ((scales > 0) & scales.isfinite()).all():
        seen = float(scales[~(scales > 0) | scales.isinf()][0])
        said = f"{what}: a scale is {seen:g}, of a group up to {float(amax.max()):.3g}"
        hint = "compute amax / 7 in fp32 and round it to bf16, which has the range of fp32; fp16 has not"
        yield failed("group_scale_lost", said, hint)
    off = float((case.in_groups(codes) - quotients).abs().max())
    lands_at = float((amax / scales)[amax > 0].min())
    if off <= _HALF_A_STEP and lands_at >= _LANDS_FROM and codes.min() > -8:
        return
    wrong = ((scales * 7 / amax) - 1).abs().nan_to_num(0.0) * (amax > 0)  # where a group is not of zeros
    if wrong.max() > _SCALE_ROUNDED:
        seen, top = (float(each.flatten()[int(wrong.argmax())]) for each in (scales, amax))
        said = f"{what}: a group whose largest magnitude is {top:.3g} has the scale {seen:.3g}: divided by "
        said += f"it, it is {top / seen:.3g}, where {top / 7:.3g} takes it to 7, the last code"
        hint = "the scale is amax / 7, however small, by which weights are divided; amax is the largest "
        hint += "abs() of one group: neighbours in a row of (out, in)"
        yield failed("other_scale", said, hint)
    said = f"{what}: a weight is off by {off:.3g} of its scale"
    hint = "(groups / scales).round() in fp32, by the scales returned, which bf16 has rounded before"
    yield failed("wrong_codes", said, hint)
