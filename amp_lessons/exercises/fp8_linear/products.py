"""One product of a linear function, held against the same in fp64, and the mistakes that explain another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.fp8_linear.operands import Operand, not_cast
from amp_lessons.exercises.small_formats import mistakes

_OF_A_SUM = 1e-5  # of the sum of magnitudes: fp32 adds a few dozen products far more exactly
_OF_16_BITS = 0.02


@dataclass(frozen=True)
class Side:
    """One operand of a product: as it was given, and as the casts that were seen stand for it."""

    name: str
    matrix: Tensor
    casts: tuple[Operand, ...]

    def turned(self) -> Side:
        """Return the transpose."""
        turned = (Operand(c.name, c.multiplier, c.stands_for.mT, c.dtype) for c in self.casts)
        return Side(self.name, self.matrix.mT, tuple(turned))


def mistakes_in_product(seen: Tensor, left: Side, right: Side, what: str) -> Iterator[Finding]:
    """Yield what is wrong with ``seen``, which should be left · right; nothing where it is right."""
    pairs = list(product(left.casts, right.casts))
    if any(_close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for) for a, b in pairs):
        return
    for a, b in pairs:
        yield from _wrong_scales(seen, a, b, what)
        yield from _left_out(seen, left, right, a, b, what)
    a, b = pairs[0]
    yield from _another_scale(seen, a, b, what)
    off = float((seen.double() - a.stands_for @ b.stands_for).norm() / (a.stands_for @ b.stands_for).norm())
    if off < _OF_16_BITS:
        yield mistakes.computed_in_16_bits(what, f"the product is off by {off:.1e} of its norm")
    yield failed(
        "wrong_product",
        f"{what}: the product of what was cast is another, by {off:.2g} of its norm",
        "multiply the 8-bit values in fp32, then by both scales; nothing else belongs to the result",
    )


def _close(seen: Tensor, wanted: Tensor, left: Tensor, right: Tensor, factor: float = 1.0) -> bool:
    """Whether a result is this product times a factor, but for sums in fp32 and the rounding to its dtype."""
    info = torch.finfo(seen.dtype)
    allowed = abs(factor) * (_OF_A_SUM * (left.abs() @ right.abs()) + info.eps * wanted.abs()) + info.tiny
    return bool(((seen.double() - factor * wanted).abs() <= allowed).all())


def _wrong_scales(seen: Tensor, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether the product is right but for scales."""
    both = a.multiplier * b.multiplier
    for factor, missing in (
        (both, "neither scale was"),
        (a.multiplier, f"the scale of {a.name} was not"),
        (b.multiplier, f"the scale of {b.name} was not"),
    ):
        if factor != 1 and _close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for, factor):
            yield _not_unscaled(f"{what}: {missing} multiplied by")
    if _close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for, both * both):
        yield mistakes.scale_inverted(what, "the product was divided by the scales")


def _another_scale(seen: Tensor, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether the product is right but for a constant, as with another operand's scale."""
    wanted = a.stands_for @ b.stands_for
    known = (a.multiplier, b.multiplier, a.multiplier * b.multiplier, 1)
    factor = float((seen.double() * wanted).sum() / (wanted * wanted).sum().clamp(min=1e-300))
    if any(math.isclose(factor, each, rel_tol=1e-3) for each in known):
        return  # which has an explanation of its own, or is no mistake in a scale
    if _close(seen, wanted, a.stands_for, b.stands_for, factor):
        yield failed(
            "not_unscaled",
            f"{what}: the result is {factor:.3g} times the product, as if a scale were another operand's",
            f"multiply by the scales of the two operands of this product: {a.name} and {b.name}",
        )


def _not_unscaled(seen: str) -> Finding:
    return failed(
        "not_unscaled",
        f"{seen}: the result is that of other operands, larger or smaller by a constant",
        "the 8-bit values stand for values · scale: multiply their product by both scales",
    )


def _left_out(seen: Tensor, left: Side, right: Side, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether an operand took part as it was before its cast."""
    if _close(seen, left.matrix @ b.stands_for, left.matrix, b.stands_for):
        yield not_cast(left.name, what)
    if _close(seen, a.stands_for @ right.matrix, a.stands_for, right.matrix):
        yield not_cast(right.name, what)
    if _close(seen, left.matrix @ right.matrix, left.matrix, right.matrix):
        yield not_cast(left.name, what)


def side(name: str, matrix: Tensor, operands: Sequence[Operand]) -> Side:
    """Return one operand with all its casts."""
    return Side(name, matrix, tuple(each for each in operands if each.name == name))
