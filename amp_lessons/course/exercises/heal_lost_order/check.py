"""Rotary position embedding at positions that 16 bits do not have: is each row rotated by its own angle?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_USUAL_BASE = 10_000.0
_TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-3}
_HAS_NOT = {torch.float16: "odd numbers above 2,048", torch.bfloat16: "odd numbers above 256"}
_WRONG_ROTATION = (
    "keep the formula that you were given, for each position and with the base: only the dtype in which it "
    "is computed is wrong; positions, frequencies and angles need fp32, and cos and sin may be cast"
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Rotate rows at near and far positions, in each dtype, with and without autocast."""
    rotate = bed.function(worker, "rotate_lost_order", None, None, _USUAL_BASE)
    for case in _cases(draw):
        coming = case.x.flip(0, -1)  # any numbers in the dtype of the result
        result, gradient = _result(rotate, case, coming)
        _require_right(result, case)
        _require_gradient(gradient, coming, case)
    yield passed("positions", "every row is rotated by the angle of its own position, up to 100,000")
    yield passed("autocast", "autocast changes nothing of it")
    yield passed("small", "what comes back is in the dtype of what went in")


@dataclass(frozen=True)
class RotationCase:
    """Rows ``x`` of shape (..., length, width), each row's position (int64), and the base of the angles."""

    x: Tensor
    positions: Tensor
    base: float = _USUAL_BASE
    autocast: torch.dtype | None = None

    @property
    def what(self) -> str:
        """The positions and dtypes of this case, as a message names them."""
        many = len(self.positions) > 1
        where = f"{len(self.positions)} positions" if many else f"position {int(self.positions[0])}"
        autocast = f" under autocast in {dtype_name(self.autocast)}" if self.autocast else ""
        base = f" with a base of {self.base:,.0f}" if self.base != _USUAL_BASE else ""
        return f"{dtype_name(self.x.dtype)} at {where}{base}{autocast}"

    @property
    def frequencies(self) -> Tensor:
        """The angles at position 1, in fp64."""
        half = self.x.shape[-1] // 2
        return self.base ** -(torch.arange(half, dtype=torch.float64) / half)

    @property
    def angles(self) -> Tensor:
        """The angles asked for, in fp64."""
        return self.positions.double()[:, None] * self.frequencies

    def near(self, seen: Tensor, wanted: Tensor) -> Tensor:
        """Whether each row is: what rounding it costs, and an angle in fp32 at its position."""
        return _errors(seen, wanted) <= _TOLERANCES[self.x.dtype] + self.positions * 2.0**-23


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the pairs of rows in fp64."""
    pairs = torch.complex(*x.double().chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], dim=-1)


def _cases(draw: torch.Generator) -> Iterator[RotationCase]:
    """Yield what to try, from the simplest to the last corner."""
    all_of_them = torch.arange(4096)
    scattered = torch.tensor([100_000, 7, 65_537, 2_049, 257, 0, 4_095])
    far = torch.arange(90_000, 100_001, 97)

    def rows(positions: Tensor, dtype: torch.dtype, *heads: int, width: int = 16) -> tuple[Tensor, Tensor]:
        return torch.randn(*heads, len(positions), width, generator=draw).to(dtype), positions

    for dtype in _TOLERANCES:
        yield RotationCase(*rows(all_of_them, dtype, 2))
    for dtype in _TOLERANCES:
        autocast = torch.bfloat16 if dtype == torch.float32 else dtype
        yield RotationCase(*rows(scattered, dtype, 2, 3))
        yield RotationCase(*rows(torch.tensor([4_095]), dtype, 2))
        yield RotationCase(*rows(far, dtype, 2, width=128))
        yield RotationCase(*rows(all_of_them, dtype, 2), autocast=autocast)
        yield RotationCase(*rows(all_of_them, dtype, 2), base=500_000.0, autocast=autocast)


def _result(rotate: bed.LearnersFunction, case: RotationCase, coming: Tensor) -> tuple[Any, Any]:
    """Return what the rows of a case become, and what the gradient ``coming`` is for them."""
    given_as = case.x, case.positions
    x, positions = (each.clone() for each in given_as)
    there, how = "amp_lessons.course.exercises.bed_there:call_with_gradients", (coming, case.autocast)
    told, _ = rotate.called_by(there, x, positions, case.base, about=f"for {case.what}", extra=how)
    bed.require_unchanged((x, positions), given_as, "x or positions", "compute with new tensors")
    return told["returned"], (told["gradients"] or [None])[0]


def _require_right(result: Any, case: RotationCase) -> None:
    """Require the right rows, or say which mistake makes others."""
    hint = "compute the angles in fp32, and cast cos and sin to x.dtype"
    bed.require_tensor(result, case.x.dtype, case.x.shape, f"for {case.what}", hint)
    right = _rotated(case.x, case.angles)
    if case.near(result, right).all():
        return
    errors = _errors(result, right)
    worst = int(errors.argmax())
    off = f"position {int(case.positions[worst])} is off by {float(errors[worst]):.2g}"
    seen = f"for {case.what}, the row at {off} of its length"
    if case.autocast and case.base == _USUAL_BASE:
        hint = "multiply without a matrix product (matmul, @, einsum), or switch autocast off around it"
        bed.reject(
            "angles_cast_back", f"{seen}, and without autocast rows at these positions are right", hint
        )
    half = case.x.dtype
    frequencies, positions = case.frequencies, case.positions.to(half).double()[:, None]
    for angles in (positions * frequencies, (positions * frequencies.to(half)).to(half).double()):
        made = _rotated(case.x, angles)
        if case.near(result, made).all() and not case.near(made, right).all():
            raise bed.Rejected(rules.numbers.positions_rounded(seen, _HAS_NOT[half]))
    bed.reject("wrong_rotation", seen, _WRONG_ROTATION)


def _require_gradient(gradient: Any, coming: Tensor, case: RotationCase) -> None:
    """Reject a graph that is cut, wholly or in part: a gradient is rotated back by the same angle."""
    if not isinstance(gradient, Tensor) or gradient.shape != case.x.shape:
        raise bed.Rejected(common_findings.gradients_cut_off(f"for {case.what}"))
    if not case.near(gradient, _rotated(coming, -case.angles)).all():
        said = f"for {case.what}, the result is right, and its gradient is not that of a rotation"
        hint = "leave out detach and .data: a gradient goes back to both halves of a row"
        bed.reject("rotation_gradients", said, hint)


def _errors(seen: Tensor, right: Tensor) -> Tensor:
    """Return how far each row is off at most, over the length of what was rotated; NaN counts as inf."""
    # both numbers of a pair may be drawn as zeros: randn makes them of one radius
    lengths = right.unflatten(-1, (2, -1)).norm(dim=-2).tile(2).clamp(min=1e-9)
    errors = ((seen.double() - right).abs() / lengths).nan_to_num(nan=torch.inf)
    return errors.amax(-1).flatten(0, -2).amax(0)
