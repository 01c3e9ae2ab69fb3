"""What a recipe is: how the two operands of each of a linear layer's three products become small.

A layer y = x Wᵀ makes three products: its output from input and weight, and on the way back the gradient of
its input from gradient and weight, and that of its weight from gradient and input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from amp_lessons.arguments import require, require_whole
from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.fp8 import transforms
from amp_lessons.fp8.accumulators import FP32, Accumulation
from amp_lessons.text.nearest import did_you_mean

Role = Literal["input", "weight", "gradient"]
ROLES: tuple[Role, ...] = ("input", "weight", "gradient")
PRODUCTS: dict[str, tuple[Role, Role]] = {
    "output": ("input", "weight"),
    "input_gradient": ("gradient", "weight"),
    "weight_gradient": ("gradient", "input"),
}
"""By name, which tensors are multiplied: the left operand, then the right one, which is transposed."""

Block = tuple[int | None, int | None]
TENSOR: Block = (None, None)
ROW: Block = (1, None)

RULES = {
    "none": "scale 1",
    "exact": "the largest magnitude becomes the largest value of the element format",
    "up": "the power of two at or above that, so that nothing saturates",
    "floor": "2^(⌊log2 amax⌋ − ⌊log2 max⌋), the rule of OCP MX v1.0: the largest may saturate",
    "even": "the same, amax being rounded to the element's mantissa first",
    "nearest": "the power of two nearest to the exact scale: the largest may lose 1 − 1/√2 of itself",
}
"""How a scale is found from the largest magnitude (amax) that shares it."""


@dataclass(frozen=True)
class Cast:
    """How one operand becomes small: the format of its elements, who shares a scale, and how it is found.

    ``block`` is how many (rows, columns) share a scale, None for all of them: ``TENSOR``, ``ROW``, (1, 32),
    (128, 128). Columns run along the dimension that the product sums over. ``scale`` is the format that a
    scale is stored in; with ``has_tensor_scale`` one more fp32 scale takes the block scales into their range.
    ``stochastic`` rounds elements up or down at random, right on average.
    """

    element: FloatFormat = FORMATS["fp8_e4m3"]
    block: Block = TENSOR
    rule: str = "exact"
    scale: FloatFormat = FORMATS["fp32"]
    has_tensor_scale: bool = False
    stochastic: bool = False

    def __post_init__(self) -> None:
        for name in ("element", "scale"):
            right = 'a number format such as formats.FORMATS["fp8_e4m3"]'
            require(getattr(self, name), FloatFormat, name, right)
        require(self.block, tuple, "block", "(rows, columns) such as (1, 32), None for all")
        if len(self.block) != 2:
            raise ValueError(f"block is (rows, columns) such as (1, 32), None for all, not {self.block}")
        for size in self.block:
            if size is not None:
                require_whole(size, "each size of a block")
        require(self.rule, str, "rule", "the name of a rule such as 'exact'")
        if self.rule not in RULES:
            raise ValueError(f"there is no rule {self.rule!r}; {did_you_mean(self.rule, RULES)}")
        if self.scale.mantissa_bits == 0 and self.rule == "exact":
            raise ValueError(f"{self.scale.name} holds powers of two alone: its rule is not 'exact' but 'up'")
        if self.rule not in ("none", "exact") and (self.has_tensor_scale or self.scale.exponent_bits < 8):
            raise ValueError(
                f"the rule {self.rule!r} needs scales in fp32 or e8m0, and none of the tensor beside"
            )

    @property
    def granularity(self) -> str:
        """Who shares a scale, in words: "tensor", "row" or "1 × 128"."""
        named = {TENSOR: "tensor", ROW: "row"}
        return named.get(self.block) or " × ".join(
            "all" if size is None else str(size) for size in self.block
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether the transpose has the same blocks, so that one cast serves both."""
        return self.block[0] == self.block[1]

    def __str__(self) -> str:
        element = self.element.name.removeprefix("fp8_").removeprefix("fp4_")
        return f"{element} {self.granularity}{' stochastic' if self.stochastic else ''}"


@dataclass(frozen=True)
class Product:
    """How both operands of one product become small.

    ``hadamard`` is the size of the random Hadamard transform that both go through first, None for none.
    """

    left: Cast
    right: Cast
    hadamard: int | None = None

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            require(getattr(self, name), Cast, name, "an fp8.Cast")
        if self.hadamard is not None:
            transforms.hadamard(self.hadamard)  # which says what is wrong with its size

    def __str__(self) -> str:
        turned = f", Hadamard {self.hadamard}" if self.hadamard else ""
        return f"{self.left} · {self.right}{turned}"


@dataclass(frozen=True)
class Recipe:
    """How a linear layer trains in few bits.

    A product that is None runs in the precision of the activations. ``amax_history`` is over how many steps
    the largest magnitude is remembered that a scale comes from; 0 takes it from the tensor at hand.
    ``source`` says where the definition comes from.
    """

    name: str
    source: str
    output: Product | None
    input_gradient: Product | None
    weight_gradient: Product | None
    amax_history: int = 0
    accumulation: Accumulation = FP32

    def __post_init__(self) -> None:
        for name in PRODUCTS:
            require(getattr(self, name), (Product, type(None)), name, "an fp8.Product, or None")
        require(self.accumulation, Accumulation, "accumulation", "an fp8.Accumulation such as fp8.FP32")
        if require_whole(self.amax_history, "amax_history", least=0) and not self._remembers_tensors():
            raise ValueError("only one scale per tensor, without Hadamard, can come from a history of amax")

    def _remembers_tensors(self) -> bool:
        return all(
            product.hadamard is None and product.left.block == product.right.block == TENSOR
            for product in self.products.values()
            if product
        )

    @property
    def products(self) -> dict[str, Product | None]:
        """The three products, by name."""
        return {name: getattr(self, name) for name in PRODUCTS}

    @property
    def bits(self) -> int:
        """How many bits the smallest element has; 32 where no product is cast."""
        casts = [
            cast for product in self.products.values() if product for cast in (product.left, product.right)
        ]
        return min((cast.element.bits for cast in casts), default=FORMATS["fp32"].bits)

    def with_casts(self, *roles: Role, **changes: Any) -> Recipe:
        """Return this recipe with other casts of "input", "weight" or "gradient"; of all for none named.

        ``recipe.with_casts("gradient", stochastic=False)`` changes that field of ``Cast`` in both products.
        Raises ValueError for another role, TypeError for what is no field.
        """
        for role in roles:
            if role not in ROLES:
                raise ValueError(f"there is no role {role!r}; {did_you_mean(role, ROLES)}")
        chosen = roles or ROLES
        changed: dict[str, Any] = {
            name: replace(
                product,
                left=replace(product.left, **changes) if PRODUCTS[name][0] in chosen else product.left,
                right=replace(product.right, **changes) if PRODUCTS[name][1] in chosen else product.right,
            )
            for name, product in self.products.items()
            if product
        }
        return replace(self, **changed)
