"""Recipes: how the two operands of each of a linear layer's three products become small.

A layer y = x Wᵀ makes three products: its output from input and weight, and on the way back the gradient of
its input from gradient and weight, and that of its weight from gradient and input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from amp_lessons._base.arguments import require, require_whole
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.fp8 import transforms

FP32_BITS = 24  # hidden bit included: an accumulator as wide as this is float32's own sum

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
    """The cast of one operand: the format of its elements, who shares a scale, and how it is found.

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
    """The casts of both operands of one product.

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
class Accumulation:
    """A register for sums of products: ``bits`` significant bits, the leading one included, or fp32 for None.

    ``promote_every`` products (None: never) the sum moves to an fp32 register. ``together`` products are
    aligned and added by one instruction.
    """

    bits: int | None = None
    promote_every: int | None = None
    together: int = 32

    def __post_init__(self) -> None:
        require_whole(self.together, "together")
        if self.bits is not None and require_whole(self.bits, "bits") > FP32_BITS - 1:
            raise ValueError(f"bits is at most {FP32_BITS - 1}, or None for fp32, not {self.bits}")
        if (
            self.promote_every is not None
            and require_whole(self.promote_every, "promote_every") % self.together
        ):
            raise ValueError(f"promote_every is a multiple of {self.together}, not {self.promote_every}")

    def __str__(self) -> str:
        if self.bits is None:
            return "fp32"
        promotion = f", to fp32 every {self.promote_every}" if self.promote_every else ""
        return f"{self.bits} bits{promotion}"


FP32 = Accumulation()


@dataclass(frozen=True)
class Recipe:
    """A linear layer's way of training in few bits.

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
        """The number of bits of the smallest element; 32 where no product is cast."""
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


# --- the recipes that models are trained with, each with the place its definition comes from

_E8M0, _E4M3 = FORMATS["e8m0"], FORMATS["fp8_e4m3"]

_tensor = Cast()
_tensor_e5m2 = Cast(FORMATS["fp8_e5m2"])
_row = Cast(block=ROW, rule="up")
_tile, _square = Cast(block=(1, 128)), Cast(block=(128, 128))
_mxfp8 = Cast(block=(1, 32), rule="up", scale=_E8M0)
_mxfp4 = Cast(FORMATS["fp4_e2m1"], block=(1, 32), rule="up", scale=_E8M0)
_mxfp4_random = Cast(FORMATS["fp4_e2m1"], block=(1, 32), rule="up", scale=_E8M0, stochastic=True)
_nvfp4 = Cast(FORMATS["fp4_e2m1"], block=(1, 16), scale=_E4M3, has_tensor_scale=True)
_nvfp4_square = Cast(FORMATS["fp4_e2m1"], block=(16, 16), scale=_E4M3, has_tensor_scale=True)
_nvfp4_random = Cast(FORMATS["fp4_e2m1"], block=(1, 16), scale=_E4M3, has_tensor_scale=True, stochastic=True)

_forward, _backward = Product(_tensor, _tensor), Product(_tensor_e5m2, _tensor)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "tensorwise",
            "torchao's recipe of that name (torchao/float8/config.py), the default there, and "
            "Float8CurrentScaling of Transformer Engine: one exact scale per tensor, E4M3 forward and "
            "E5M2 for gradients",
            _forward,
            _backward,
            _backward,
        ),
        Recipe(
            "delayed",
            "DelayedScaling of Transformer Engine (transformer_engine/common/recipe): as tensorwise, "
            "but the scale comes from the largest magnitude of the 1024 steps before, and is 1 in the "
            "first",
            _forward,
            _backward,
            _backward,
            amax_history=1024,
        ),
        Recipe(
            "rowwise",
            "torchao's recipe of that name (torchao/float8/config.py): one scale per row, rounded to "
            "a power of two, E4M3 everywhere",
            Product(_row, _row),
            Product(_row, _row),
            Product(_row, _row),
        ),
        Recipe(
            "rowwise_with_gw_hp",
            "torchao's recipe of that name (torchao/float8/config.py): as rowwise, but the weight has "
            "one scale where it meets the gradient, and the gradient of the weight stays in high "
            "precision",
            Product(_row, _row),
            Product(_row, Cast(rule="up")),
            None,
        ),
        Recipe(
            "deepseek_v3",
            "DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437, section 3.3: E4M3 "
            "everywhere, 1 × 128 of activations and gradients and 128 × 128 of weights share an fp32 "
            "scale, sums leave the tensor core's 14 bits every 128 products. The report casts the "
            "stored 1 × 128 activations again along the other side; here both come from high "
            "precision, as in torchao and Transformer Engine",
            Product(_tile, _square),
            Product(_tile, _square),
            Product(_tile, _tile),
            accumulation=Accumulation(bits=14, promote_every=128),
        ),
        Recipe(
            "mxfp8",
            "OCP Microscaling Formats (MX) v1.0 for the format; E4M3 everywhere and scales rounded up "
            "as in https://arxiv.org/abs/2506.08027 and MXFP8BlockScaling of Transformer Engine; both "
            "directions are cast from high precision",
            Product(_mxfp8, _mxfp8),
            Product(_mxfp8, _mxfp8),
            Product(_mxfp8, _mxfp8),
        ),
        Recipe(
            "mxfp4",
            "OCP Microscaling Formats (MX) v1.0 for the format; stochastic rounding of gradients, and "
            "a Hadamard transform, after https://arxiv.org/abs/2502.20586, which keeps the forward "
            "pass in bf16 while here all three products are in four bits; scales are rounded up, so "
            "that nothing saturates",
            Product(_mxfp4, _mxfp4),
            Product(_mxfp4_random, _mxfp4),
            Product(_mxfp4_random, _mxfp4, hadamard=32),
        ),
        Recipe(
            "nvfp4",
            "Pretraining Large Language Models with NVFP4, https://arxiv.org/abs/2509.25149, and "
            "NVFP4BlockScaling of Transformer Engine: 1 × 16 share an E4M3 scale, 16 × 16 of weights, "
            "beside one fp32 scale per tensor; gradients are rounded stochastically; for the gradient "
            "of the weight both operands go through a random Hadamard transform. The paper leaves "
            "some layers in bf16: see ``keep``",
            Product(_nvfp4, _nvfp4_square),
            Product(_nvfp4_random, _nvfp4_square),
            Product(_nvfp4_random, _nvfp4, hadamard=16),
        ),
    )
}
"""By name. ``dataclasses.replace`` and ``Recipe.with_casts`` make others of them."""


def require_recipe(value: Any, name: str = "recipe") -> Recipe:
    """Return a recipe, or the one of that name. Raises TypeError or ValueError for anything else."""
    require(value, (str, Recipe), name, "a Recipe or the name of one such as 'tensorwise'")
    if isinstance(value, str) and value not in RECIPES:
        raise ValueError(f"there is no {name} {value!r:.60}; {did_you_mean(value[:60], RECIPES)}")
    return RECIPES[value] if isinstance(value, str) else value
