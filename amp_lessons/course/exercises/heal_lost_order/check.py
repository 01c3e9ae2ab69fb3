"""Rotary position embedding at positions that 16 bits do not have: is each row rotated by its own angle?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.heal_lost_order import rotation_there
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_MANY = 1_000
_USUAL_BASE = 10_000.0
_TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-3}


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Rotate rows at near and far positions, in each dtype, with and without autocast."""
    rotate = function(worker, "rotate_lost_order", None, None, _USUAL_BASE)
    for case in _cases(draw):
        coming = case.x.flip(0, -1)  # any numbers in the dtype of the result
        result, gradient = _result(rotate, case, coming)
        _require_right(result, case, rotate)
        if len(case.positions) < _MANY:  # a graph has no eye for positions
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
    autocast: bool = False

    @property
    def what(self) -> str:
        """The positions and dtypes of this case, as a message names them."""
        where = (
            f"position {int(self.positions[0])}"
            if len(self.positions) == 1
            else f"{len(self.positions)} positions"
        )
        autocast = f" under autocast in {dtype_name(self.autocast_dtype)}" if self.autocast else ""
        return f"{dtype_name(self.x.dtype)} at {where}{autocast}"

    @property
    def autocast_dtype(self) -> torch.dtype:
        """The dtype of autocast where it is on: what came out of an operation under it is in the same."""
        return torch.bfloat16 if self.x.dtype == torch.float32 else self.x.dtype

    @property
    def tolerance(self) -> Tensor:
        """How far each row may be off: what rounding costs, and an angle in fp32 at its position."""
        return _TOLERANCES[self.x.dtype] + self.positions * 2.0**-23

    def right(self, x: Tensor, turns: float = 1.0) -> Tensor:
        """Rotate ``x`` of the shape of this one's in fp64; ``turns`` is -1 for the other way."""
        half = x.shape[-1] // 2
        exponents = torch.arange(half, dtype=torch.float64) / half
        angles = turns * self.positions.double()[:, None] * self.base**-exponents
        pairs = torch.complex(*x.double().chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([pairs.real, pairs.imag], dim=-1)


def _cases(draw: torch.Generator) -> Iterator[RotationCase]:
    """Yield what to try, from the simplest to the last corner."""
    all_of_them = torch.arange(4096)
    scattered = torch.tensor([100_000, 7, 65_537, 2_049, 257, 0, 4_095])
    far = torch.arange(90_000, 100_001, 97)

    def rows(positions: Tensor, dtype: torch.dtype, *heads: int, width: int = 16) -> tuple[Tensor, Tensor]:
        return torch.randn(*heads, len(positions), width, generator=draw).to(dtype), positions

    for dtype in (torch.float16, torch.bfloat16):
        yield RotationCase(*rows(all_of_them, dtype, 2))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        yield RotationCase(*rows(scattered, dtype, 2, 3))
        yield RotationCase(*rows(torch.tensor([4_095]), dtype, 2))
        yield RotationCase(*rows(far, dtype, 2, width=128))
        yield RotationCase(*rows(all_of_them, dtype, 2), autocast=True)
        yield RotationCase(*rows(all_of_them, dtype, 2), base=500_000.0, autocast=True)


def _result(rotate: LearnersFunction, case: RotationCase, coming: Tensor | None = None) -> tuple[Any, Any]:
    """Return what the rows of a case become, and what the gradient ``coming`` is for them."""
    x, positions = case.x.clone(), case.positions.clone()
    (result, gradient), _ = rotate.called_by(
        f"{rotation_there.__name__}:rotated",
        *(x, positions, case.base),
        about=f"for {case.what}",
        extra=(case.autocast_dtype if case.autocast else None, coming),
    )
    if not torch.equal(x, case.x) or not torch.equal(positions, case.positions):
        reject("inputs_changed", "x or positions were changed in place", "compute with new tensors")
    return result, gradient


def _require_right(result: Any, case: RotationCase, rotate: LearnersFunction) -> None:
    if not isinstance(result, Tensor) or result.dtype != case.x.dtype or result.shape != case.x.shape:
        reject(
            "wrong_return_type",
            f"{described(case.x)} was expected for {case.what}, not {described(result)}",
            "compute the angles in fp32, and cast cos and sin to x.dtype",
        )
    errors = _errors(result, case.right(case.x))
    if not (errors <= case.tolerance).all():
        _reject(errors, case, rotate, result)


def _require_gradient(gradient: Any, coming: Tensor, case: RotationCase) -> None:
    """Reject a graph that is cut, wholly or in part: a gradient is rotated back by the same angle."""
    if not isinstance(gradient, Tensor) or gradient.shape != case.x.shape:
        raise Rejected(common_findings.gradients_cut_off(f"for {case.what}"))
    if not (_errors(gradient, case.right(coming, turns=-1.0)) <= case.tolerance).all():
        reject(
            "rotation_gradients",
            f"for {case.what}, the result is right, and its gradient is not that of a rotation",
            "leave out detach and .data: a gradient goes back to both halves of a row",
        )


def _errors(seen: Tensor, right: Tensor) -> Tensor:
    """Return how far each row is off at most, over the length of what was rotated; NaN counts as inf."""
    # both numbers of a pair may be drawn as zeros: randn makes them of one radius
    lengths = right.unflatten(-1, (2, -1)).norm(dim=-2).tile(2).clamp(min=1e-9)
    errors = ((seen.double() - right).abs() / lengths).nan_to_num(nan=torch.inf)
    return errors.amax(-1).flatten(0, -2).amax(0)


def _reject(errors: Tensor, case: RotationCase, rotate: LearnersFunction, result: Tensor) -> NoReturn:
    worst = int(errors.argmax())
    position = int(case.positions[worst])
    seen = (
        f"for {case.what}, the row at position {position} is off by {float(errors[worst]):.2g} of its length"
    )
    _require_the_formula(result, case, seen)
    if case.autocast and _is_right_without_autocast(rotate, case):
        reject(
            "angles_cast_back",
            f"{seen}, and right without autocast: its matrix products (matmul, @, einsum) cast what they "
            "are given to 16 bits, whatever was cast before",
            "multiply without a matrix product, or switch autocast off around it",
        )
    if case.x.dtype != torch.float32 and _shares_an_angle(rotate, case):
        raise Rejected(catalogue.precision.positions_rounded(seen, _HAS_NOT[case.x.dtype]))
    if case.x.dtype != torch.float32 and _grows(rotate, case):
        reject(
            "angles_rounded",
            f"{seen}: the error grows with the position, as it does where frequencies or angles were "
            "rounded, to 16 bits say: an angle of thousands must be right to a thousandth",
            "compute frequencies and angles in fp32; cos and sin may be cast",
        )
    reject(
        "wrong_rotation",
        f"{seen}, and rounding does not explain it",
        "keep the formula of the code you were given: only in which dtype it is computed is wrong",
    )


def _require_the_formula(result: Tensor, case: RotationCase, seen: str) -> None:
    """Reject rows that another formula explains, to the tolerance of the right one."""
    for what, (found, wanted) in _by_other_formulas(result, case).items():
        if (_errors(found, wanted) <= case.tolerance).all():
            reject(
                "wrong_rotation",
                f"{seen}, and right for {what}",
                "keep the formula of the code you were given: only in which dtype it is computed is wrong",
            )


def _by_other_formulas(result: Tensor, case: RotationCase) -> dict[str, tuple[Tensor, Tensor]]:
    """Put a result, its pairs in halves, beside what other embeddings make of a case."""
    in_order = torch.arange(len(case.positions))
    others = {
        "turns in the opposite direction": (result, case.right(case.x, turns=-1.0)),
        "pairs of neighbours, 2i and 2i + 1, in place of number i of each half": (
            _halves_of(result),
            case.right(_halves_of(case.x)),
        ),
        "rows numbered 0, 1, 2, …: positions were not used": (
            result,
            replace(case, positions=in_order).right(case.x),
        ),
    }
    if case.base != _USUAL_BASE:
        what = f"a base of {_USUAL_BASE:,.0f}, not the one given: it is typed in, or angles were kept"
        others[what] = result, replace(case, base=_USUAL_BASE).right(case.x)
    return others


def _halves_of(neighbours: Tensor) -> Tensor:
    """Bring numbers 2i into the first half of each row, and 2i + 1 into the second."""
    return neighbours.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


_HAS_NOT = {torch.float16: "odd numbers above 2,048", torch.bfloat16: "odd numbers above 256"}


def _is_right_without_autocast(rotate: LearnersFunction, case: RotationCase) -> bool:
    alone = replace(case, autocast=False)
    result, _ = _result(rotate, alone)
    return isinstance(result, Tensor) and bool(
        (_errors(result, alone.right(alone.x)) <= case.tolerance).all()
    )


def _grows(rotate: LearnersFunction, case: RotationCase) -> bool:
    """Whether near rows are hardly off, and farther ones more in proportion, as where digits are lost."""
    octaves = (_one_row_at(rotate, case, torch.arange(start, 2 * start)) for start in (16, 64, 256))
    near, farther, far = (float(_errors(seen, right).mean()) for seen, right in octaves)
    return near < 0.2 and farther > 1.5 * near and far > 2 * farther


def _shares_an_angle(rotate: LearnersFunction, case: RotationCase) -> bool:
    """Whether two neighbours that the dtype does not tell apart are rotated alike, and two others are not."""
    even = 2_048 if case.x.dtype == torch.float16 else 256
    first, second, third = _one_row_at(rotate, case, torch.arange(even, even + 3))[0][0]
    return torch.equal(first, second) and not torch.equal(second, third)


def _one_row_at(rotate: LearnersFunction, case: RotationCase, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a row of a case becomes at other positions, and what it should, (1, positions, width)."""
    x = case.x.flatten(0, -2)[:1].tile(len(positions), 1)[None]
    again = replace(case, x=x, positions=positions)
    right = again.right(x)
    seen, _ = _result(rotate, again)
    return (seen if isinstance(seen, Tensor) and seen.shape == right.shape else right * torch.nan), right
