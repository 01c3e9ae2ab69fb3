"""INT4 by groups: what codes and scales stand for is held against the weights, in fp64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, described, function, said_of
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.formats.dtypes import dtype_name

_LOWEST, _HIGHEST = -8, 7
_HALF_A_STEP = 0.501  # of a scale: a thousandth for a quotient that is rounded to fp32
_LANDS_FROM = 6.9  # 7, and a scale that is rounded to bf16
_BY_16_BITS = 0.54  # half a unit of bf16 beside 7 is a 64th of a step, and a scale's own is as much


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

    @property
    def groups(self) -> Tensor:
        """The weights in fp64, (out, groups, size), zeros where the last group is shorter."""
        columns = self.weight.shape[1]
        padded = pad(self.weight.double(), (0, -columns % self.group_size))
        return padded.unflatten(1, (-1, self.group_size))

    def as_matrix(self, groups: Tensor) -> Tensor:
        """Return what stands in groups as a matrix like the weights."""
        return groups.flatten(1)[:, : self.weight.shape[1]]


def cases() -> Iterator[GroupCase]:
    """Yield what to quantise, from the simplest to the last corner."""
    yield GroupCase("a square matrix", _drawn(3, 64, 64), 16)  # where a wrong dimension has the right shape
    yield GroupCase("weights", _drawn(1, 16, 96), 32)
    yield GroupCase("weights, the largest of each row negative", -_drawn(2, 16, 96).abs(), 32)
    yield GroupCase("weights", _drawn(4, 24, 128).bfloat16(), 32)
    yield GroupCase("weights", _drawn(5, 24, 128).half(), 64)
    yield GroupCase("a transposed matrix", _drawn(6, 96, 20).t(), 32)
    yield GroupCase("rows whose last group is shorter", _drawn(7, 12, 70), 32)
    yield GroupCase("rows shorter than a group", _drawn(8, 12, 20), 128)
    yield GroupCase("weights up to 3e38", _drawn(9, 4, 64) * 1e38, 32)
    yield GroupCase("weights up to 1e-28", _drawn(10, 4, 64) * 1e-28, 32)
    yield _with_zeros()


def _drawn(seed: int, rows: int, columns: int) -> Tensor:
    """Draw weights, the rows of different sizes, with an outlier in each."""
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=draw) * torch.rand(rows, 1, generator=draw).add(0.2)
    weight[:, seed % columns] *= 4
    return weight / weight.abs().max() * 2.9


def _with_zeros() -> GroupCase:
    weight = _drawn(11, 6, 96)
    weight[2, 32:64] = 0.0
    weight[4] = 0.0
    return GroupCase("groups of zeros", weight, 32)


# --- the check


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have matrices quantised; codes that do not stand for the weights are rejected by what leads there."""
    group_quantize = function(worker, "group_quantize", torch.zeros(2, 4), 2)
    for case in cases():
        codes, scales = _answer(group_quantize, case)
        require_none(_mistakes(codes, scales, case))
    _require_refused(group_quantize)
    yield passed("half_a_scale", "codes · scales are the weights, to half of a scale")
    yield passed("scale_per_group", "each group along the inputs has the scale of its own largest magnitude")
    yield passed("not_finite_refused", "weights that are inf or NaN are refused")


def _answer(group_quantize: LearnersFunction, case: GroupCase) -> tuple[Tensor, Tensor]:
    """Return codes (out, in) and scales (out, groups) in fp64, of the types that were asked for."""
    weight = case.weight.clone()
    returned = group_quantize(weight, case.group_size, about=case.what)
    if not torch.equal(weight, case.weight):
        raise Rejected(common_findings.inputs_changed("the weights", "compute with a new tensor"))
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise Rejected(_wrong_type("a pair of codes and scales was", returned, case))
    codes, scales = returned
    _require_like(codes, torch.int8, tuple(case.weight.shape), "codes", case)
    _require_like(scales, torch.bfloat16, tuple(case.groups.shape[:2]), "scales", case)
    return codes.double(), scales.double()


def _require_like(value: Any, dtype: torch.dtype, shape: tuple[int, ...], name: str, case: GroupCase) -> None:
    right = isinstance(value, Tensor) and value.dtype == dtype and value.shape == shape
    if not right:
        raise Rejected(_wrong_type(f"{name} of dtype {dtype} and shape {shape} were", value, case))


def _wrong_type(expected: str, seen: Any, case: GroupCase) -> Finding:
    return common_findings.wrong_return_type(
        expected,
        f"{described(seen)}, {case.what}",
        "pad the inputs to whole groups, reshape to (out, groups, size), and cut off the padding at the end",
    )


def _require_refused(group_quantize: LearnersFunction) -> None:
    for value in (torch.inf, torch.nan):
        weight = _drawn(12, 4, 64)
        weight[1, 40] = value
        raised = group_quantize.exception(weight, 32)
        if raised is None:
            reject(
                "not_finite_quantised",
                f"a matrix with {value} was quantised: no code stands for it, and nobody will see it again",
                "raise ValueError unless weight.isfinite().all()",
            )
        if "ValueError" not in raised.kinds:
            raise Rejected(said_of(raised, f"for weights with {value}, where ValueError was asked"))


# --- what is wrong with codes and scales


def _mistakes(codes: Tensor, scales: Tensor, case: GroupCase) -> Iterator[Finding]:
    what, amax = case.what, case.groups.abs().amax(-1)
    if not ((codes >= _LOWEST) & (codes <= _HIGHEST)).all():
        yield _out_of_range(codes, what)
    if not ((scales > 0) & scales.isfinite()).all():
        yield _no_scale(scales, amax, case)
    steps_off, lands_at = _steps_off(codes, scales, case), amax / scales
    unused = bool((lands_at[amax > 0] < _LANDS_FROM).any())
    if steps_off > _HALF_A_STEP or unused:
        yield from _other_scales(scales, amax, case)
        yield from _other_codes(codes, scales, amax, steps_off, case)
        if unused:
            yield _codes_unused(float(lands_at[amax > 0].min()), what)
        yield _wrong_codes(steps_off, what)


def _out_of_range(codes: Tensor, what: str) -> Finding:
    return failed(
        "codes_out_of_range",
        f"{what}: codes run from {codes.min():g} to {codes.max():g}, and 4 bits have -8 to 7",
        "divide the largest magnitude by 7, and clamp to (-8, 7) before the cast, which wraps around",
    )


def _no_scale(scales: Tensor, amax: Tensor, case: GroupCase) -> Finding:
    if (scales[amax == 0] == 0).any() or scales[amax == 0].isnan().any():
        return mistakes.zero_amax(
            case.what,
            "a group of zeros has a scale of 0 or NaN",
            common="groups that are all zero are common in pruned and in padded weights",
        )
    return failed(
        "group_scale_lost",
        f"{case.what}: a scale is {float(scales[~(scales > 0) | scales.isinf()][0]):g}, of a group up to "
        f"{float(amax.max()):.3g}",
        "compute amax / 7 in fp32 and round it to bf16, which has the range of fp32; fp16 has not",
    )


def _steps_off(codes: Tensor, scales: Tensor, case: GroupCase) -> float:
    """Return by how many scales a weight is off, at most."""
    by_group = pad(codes, (0, -codes.shape[1] % case.group_size)).unflatten(1, (-1, case.group_size))
    return float((by_group - case.groups / scales[..., None]).abs().max())


def _other_scales(scales: Tensor, amax: Tensor, case: GroupCase) -> Iterator[Finding]:
    """Find out whether the scales are those of something else than each group's largest magnitude."""
    if _are_near(scales, case.groups.amax(-1).clamp(min=1e-30) / 7):
        yield catalogue.steps.signs_ignored(
            f"a scale comes from the largest number of its group, {case.what}, and the smallest lies further "
            "from zero",
            "magnitudes decide: abs() before amax",
        )
    shared = amax.amax(1, keepdim=True), amax.amax()
    if amax.shape[1] > 1 and any(_are_near(scales, each.expand_as(scales) / 7) for each in shared):
        yield failed(
            "scale_per_row",
            f"{case.what}: all groups of a row have the same scale, that of its largest weight: an outlier "
            "costs the whole row its small weights",
            "take amax over the last dimension of (out, groups, size), and over no other",
        )
    if _are_near(scales * amax, torch.full_like(amax, 7.0)):
        yield mistakes.scale_inverted(case.what, "the scales are 7 / amax, where amax / 7 is asked for")
    yield from _other_groups(scales, case)


def _other_groups(scales: Tensor, case: GroupCase) -> Iterator[Finding]:
    """Find out whether other weights share a scale than neighbours along the inputs."""
    weight, size = case.weight.double().abs(), case.group_size
    if weight.shape[0] % size == 0:
        of_outputs = weight.t().unflatten(1, (-1, size)).amax(-1) / 7
        if any(_are_near(scales, each) for each in (of_outputs, of_outputs.t())):
            yield failed(
                "groups_of_outputs",
                f"{case.what}: a scale is that of weights of {size} outputs; a product adds up over inputs, "
                "and a kernel looks for the scale of a part of that sum",
                "weight has shape (out, in): groups lie along its last dimension",
            )
    if weight.shape[1] % size == 0 and _are_near(scales, weight.unflatten(1, (size, -1)).amax(1) / 7):
        yield failed(
            "groups_interleaved",
            f"{case.what}: a scale is that of every {weight.shape[1] // size}th weight of a row: neighbours "
            "share none",
            "reshape to (out, groups, size): the last dimension runs over neighbours",
        )


def _are_near(scales: Tensor, others: Tensor) -> bool:
    return scales.shape == others.shape and torch.allclose(scales, others, rtol=2**-7, atol=0.0)


def _other_codes(
    codes: Tensor, scales: Tensor, amax: Tensor, steps_off: float, case: GroupCase
) -> Iterator[Finding]:
    """Find out how codes came about that are not the nearest to weight / scale."""
    quotients = case.as_matrix(case.groups / scales[..., None])
    if quotients.abs().max() > _HIGHEST + _HALF_A_STEP:
        yield _codes_clipped(quotients, case.what)
    if steps_off > _BY_16_BITS:
        for name, rounded in (("towards zero", quotients.trunc()), ("down", quotients.floor())):
            if torch.equal(codes, rounded):
                yield _codes_truncated(name, steps_off, case.what)
    elif steps_off > _HALF_A_STEP:
        before = case.as_matrix(case.groups / (amax / 7).clamp(min=1e-30)[..., None]).round()
        if (codes == before).double().mean() > 0.999:
            yield _codes_of_another_scale(steps_off, case.what)
        yield mistakes.computed_in_16_bits(case.what, f"a weight is off by {steps_off:.3f} of its scale")


def _codes_truncated(name: str, steps_off: float, what: str) -> Finding:
    return failed(
        "codes_truncated",
        f"{what}: quotients were rounded {name}, and a weight is off by up to {steps_off:.2f} of its scale",
        "round() before the cast to int8, which cuts digits off",
    )


def _codes_of_another_scale(steps_off: float, what: str) -> Finding:
    return failed(
        "codes_of_another_scale",
        f"{what}: a weight is off by {steps_off:.3f} of its scale: the codes belong to the scale before it "
        "was rounded to bf16, and will be multiplied by the one after",
        "round the scale first, and divide by what you return",
    )


def _codes_clipped(quotients: Tensor, what: str) -> Finding:
    largest = float(quotients.abs().max())
    return failed(
        "codes_clipped",
        f"{what}: a weight of {largest:.3g} times its scale was cut off: the largest weights of a group, "
        "which count most, become smaller",
        "the largest magnitude of a group decides, and lands at 7; -8 may stay unused",
    )


def _codes_unused(lands_at: float, what: str) -> Finding:
    return failed(
        "codes_unused",
        f"{what}: the largest magnitude of a group lands at {lands_at:.3g}, and codes reach 7: of 15 steps "
        f"only {2 * int(lands_at) + 1} are used, and the error grows as much",
        "divide the largest magnitude of each group by 7",
    )


def _wrong_codes(steps_off: float, what: str) -> Finding:
    return failed(
        "wrong_codes",
        f"{what}: a weight is off by {steps_off:.3g} of its scale, and no known mistake explains it",
        "codes are (groups / scales).round(), in the order of the weights",
    )
