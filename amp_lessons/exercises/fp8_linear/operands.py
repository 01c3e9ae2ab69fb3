"""Which operand was cast, by which number it was multiplied before, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.small_formats import mistakes
from amp_lessons.exercises.small_formats.watching import FORMAT_OF, SeenCast

WANTED = {"x": torch.float8_e4m3fn, "weight": torch.float8_e4m3fn, "gradient": torch.float8_e5m2}
_SAME = 2.0**-7  # more than bf16 rounds, less than any cast to eight bits


@dataclass(frozen=True)
class Operand:
    """A cast of an operand: of which, the number it was multiplied by, and what it stands for afterwards."""

    name: str
    multiplier: float
    stands_for: Tensor
    dtype: torch.dtype


def multiple_of(seen: Tensor, matrix: Tensor) -> float | None:
    """Return the number that times ``matrix`` is ``seen``; None where there is none."""
    if seen.shape != matrix.shape or not seen.any():
        return None
    factor = float((seen * matrix).sum() / matrix.square().sum())
    same = (seen - factor * matrix).abs() <= _SAME * (factor * matrix).abs()
    return factor if factor and bool(same.all()) else None


def recognised(cast: SeenCast, matrices: Mapping[str, Tensor]) -> Operand | None:
    """Say which operand was cast, as it is or transposed; None where it is none of them times one number."""
    for name, matrix in matrices.items():
        for source, values in ((cast.source, cast.values), (cast.source.mT, cast.values.mT)):
            factor = multiple_of(source, matrix)
            if factor is not None:
                return Operand(name, factor, values / factor, cast.dtype)
    return None


def mistakes_in_casts(
    casts: Sequence[SeenCast], matrices: Mapping[str, Tensor], needed: Sequence[str], what: str
) -> Iterator[Finding]:
    """Yield what is wrong with these casts; ``needed`` are the operands that have to be among them."""
    found = [recognised(cast, matrices) for cast in casts]
    for place, (cast, operand) in enumerate(zip(casts, found, strict=True)):
        if operand is None:
            yield _of_something_else(cast, casts[:place], "gradient" in needed, what)
            continue
        yield from _mistakes_in(operand, matrices[operand.name], what)
    for name in needed:
        if all(operand is None or operand.name != name for operand in found):
            yield not_cast(name, what)


def _mistakes_in(operand: Operand, matrix: Tensor, what: str) -> Iterator[Finding]:
    element, of = FORMAT_OF[operand.dtype], f"{what}, the cast of {operand.name}"
    if operand.dtype != WANTED[operand.name]:
        yield gradient_format(what) if operand.name == "gradient" else _forward_format(operand.name, what)
    misplaced = mistakes.misplaced(float(matrix.abs().max()), 1 / abs(operand.multiplier), element, of)
    if misplaced is not None and operand.multiplier == 1:
        values = operand.stands_for
        underflowed, saturated = (values == 0) & (matrix != 0), matrix.abs() > element.max
        yield mistakes.not_scaled(of, *(float(each.double().mean()) for each in (underflowed, saturated)))
    if misplaced is not None:
        yield misplaced


def _of_something_else(cast: SeenCast, earlier: Sequence[SeenCast], backward: bool, what: str) -> Finding:
    again = {str(place): each.values for place, each in enumerate(earlier)}
    if recognised(cast, again) is not None:
        return failed(
            "quantised_twice",
            f"{what}: what had been cast to 8 bits was taken back and cast again: it is rounded a second "
            "time, by another scale or along another side to other numbers",
            "transpose the 8-bit values, or cast the transposed tensor from high precision",
        )
    if backward and cast.dtype == torch.float8_e4m3fn:
        return gradient_format(what)
    return failed(
        "unknown_cast",
        f"{what}: a tensor of shape {tuple(cast.source.shape)} was cast to {cast.dtype}, and it is no "
        "operand times one number",
        "one scale per tensor; cast x, weight and gradient, and no result",
    )


def gradient_format(what: str) -> Finding:
    """Report that a gradient was cast as weights are."""
    return failed(
        "gradient_format",
        f"{what}: a gradient was cast to E4M3, the format of weights: autograd does so by itself where "
        ".to(dtype) is part of its graph, and without a scale",
        "write the backward pass: a gradient is scaled and cast to torch.float8_e5m2",
    )


def _forward_format(name: str, what: str) -> Finding:
    return failed(
        "forward_format",
        f"{what}: {name} was cast to E5M2, which has two bits of mantissa where E4M3 has three",
        "torch.float8_e4m3fn for x and weight, in all three products",
    )


def not_cast(name: str, what: str) -> Finding:
    """Report an operand that keeps its digits."""
    if name == "gradient":
        return failed(
            "gradient_not_cast",
            f"{what}: the gradient was multiplied without a cast to 8 bits, or not seen to be cast",
            "cast it with a scale to torch.float8_e5m2, for both products of the backward pass",
        )
    return failed(
        "operand_not_cast",
        f"{what}: {name} was multiplied without a cast to 8 bits, or not seen to be cast",
        "cast it with a scale, tensor.to(torch.float8_e4m3fn), in all products that it is part of",
    )
