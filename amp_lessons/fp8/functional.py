"""A linear layer's three products in few bits, with the derivative that training uses.

The derivative is that of the plain layer: each of its products gets operands that are cast, and what a cast
did is taken for a constant, as every such training does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from amp_lessons._base.arguments import require
from amp_lessons.devices import without_autocast
from amp_lessons.fp8.products import DTYPES, UNCAST, require_engine, scaled_product
from amp_lessons.fp8.quantized import Quantized, quantize
from amp_lessons.fp8.recipes import PRODUCTS, Cast, Recipe, Role, require_recipe
from amp_lessons.fp8.recording import is_recording, note
from amp_lessons.fp8.scale_rules import AmaxHistory
from amp_lessons.fp8.transforms import random_hadamard


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    recipe: str | Recipe = "tensorwise",
    *,
    history: AmaxHistory | None = None,
    engine: str = "auto",
    generator: torch.Generator | None = None,
    layer: str = "",
) -> Tensor:
    """Return ``x`` (..., inputs) times the transpose of ``weight`` (outputs, inputs), plus ``bias``.

    All are fp32, bf16 or fp16, each its own, so that masters may stay fp32: they are cast to few bits as they
    are. The result has the dtype of ``x``, or autocast's where that is on. Gradients have their tensors'
    dtypes and can be taken once, not of gradients again. A recipe with a history of amax needs ``history``,
    one for each layer. ``engine`` is what ``scaled_product`` takes; ``generator`` is for stochastic rounding.
    ``layer`` is the name that ``record`` takes down. Raises TypeError or ValueError for anything else.
    """
    recipe = require_recipe(recipe)
    _check_tensors(x, weight, bias)
    require(history, (AmaxHistory, type(None)), "history", "an fp8.AmaxHistory, or None")
    require(generator, (torch.Generator, type(None)), "generator", "a torch.Generator, or None")
    if recipe.amax_history and history is None:
        raise ValueError(
            f"the recipe {recipe.name!r} remembers amax from step to step: give history=fp8.AmaxHistory("
            f"{recipe.amax_history}), one for each layer, or take fp8.convert, whose layers have one"
        )
    require(layer, str, "layer", "the name of a layer")
    operands = Operands(recipe, history if recipe.amax_history else None, generator)
    return _Linear.apply(x, weight, bias, _Way(operands, require_engine(engine), _result_dtype(x), layer))


@dataclass(frozen=True)
class _Way:
    """One layer's way of computing in one step; ``dtype`` is that of its output, and of what is not cast."""

    operands: Operands
    engine: str
    dtype: torch.dtype
    layer: str


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, way: _Way) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.way, ctx.bias_dtype = way, None if bias is None else bias.dtype
        with without_autocast(x.device.type):
            made = _product("output", way, _rows(x).to(way.dtype), weight, way.dtype)
            # After the product was rounded, as in torchao: most kernels take no bias, or not for every dtype
            made = made if bias is None else made + bias.to(way.dtype)
            return made.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        way = replace(ctx.way, operands=ctx.way.operands.for_backward())
        rows, inputs = _rows(gradient), _rows(x).to(way.dtype)
        to_x = to_weight = to_bias = None
        with without_autocast(x.device.type):
            if ctx.needs_input_grad[0]:
                to_x = _product("input_gradient", way, rows, weight, x.dtype).reshape(x.shape)
            if ctx.needs_input_grad[1]:
                to_weight = _product("weight_gradient", way, rows, inputs, weight.dtype)
            if ctx.needs_input_grad[2]:
                to_bias = rows.sum(0, dtype=torch.float32).to(ctx.bias_dtype)
        return to_x, to_weight, to_bias, None


# Which operands a product needs transposed, so that what it sums over comes last in both
_TRANSPOSED = {"output": (False, False), "input_gradient": (False, True), "weight_gradient": (True, True)}


def _product(name: str, way: _Way, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute one of the three products to ``dtype``: cast as the recipe says, or plainly."""
    product = way.operands.recipe.products[name]
    if product is None:
        note(way.layer, name, UNCAST)
        plain = (
            each.t() if turn else each for each, turn in zip((left, right), _TRANSPOSED[name], strict=True)
        )
        return F.linear(*(each.to(way.dtype) for each in plain)).to(dtype)
    (first, second), (turn_left, turn_right) = PRODUCTS[name], _TRANSPOSED[name]
    cast, hadamard, accumulation = way.operands.cast, product.hadamard, way.operands.recipe.accumulation
    a = cast(first, left, product.left, hadamard, transposed=turn_left)
    b = cast(second, right, product.right, hadamard, transposed=turn_right)
    made = scaled_product(a, b, accumulation=accumulation, dtype=dtype, engine=way.engine)
    note(way.layer, name, made.engine, (first, a), (second, b))
    return made.values


def _rows(x: Tensor) -> Tensor:
    """Return a tensor as a matrix of its last dimension; -1 could not be made out where there is nothing."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _result_dtype(x: Tensor) -> torch.dtype:
    kind = x.device.type
    in_autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if in_autocast else x.dtype


def _check_tensors(x: Any, weight: Any, bias: Any) -> None:
    for name, tensor in (("x", x), ("weight", weight), *([] if bias is None else [("bias", bias)])):
        require(tensor, Tensor, name, "a tensor of fp32, bf16 or fp16")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} is a tensor of fp32, bf16 or fp16, not of {tensor.dtype}")
    if not x.dim() or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        shapes = f"{tuple(x.shape)} and {tuple(weight.shape)}"
        raise ValueError(f"x is (..., inputs) and weight (outputs, inputs), not {shapes}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias has the shape {tuple(weight.shape[:1])}, one per output, not {tuple(bias.shape)}"
        )


# --- the operands of a linear layer's products: which tensor is cast how, how often, and along which side


@dataclass(frozen=True)
class Operands:
    """Casts the tensors of one layer and one step.

    A cast whose blocks are as wide as high serves both products that need the tensor, and is made once: a
    history counts it once. Any other is made again along the other side, from the tensor itself, for casting
    what a first cast has left would round twice.
    """

    recipe: Recipe
    history: AmaxHistory | None
    generator: torch.Generator | None
    made: dict[tuple[Role, Cast], Quantized] = field(default_factory=dict)

    def for_backward(self) -> Operands:
        """Return these with what is cast so far; what one backward pass adds is not there in the next."""
        return replace(self, made=dict(self.made))

    def cast(
        self, role: Role, tensor: Tensor, cast: Cast, hadamard: int | None, *, transposed: bool
    ) -> Quantized:
        """Return a matrix, or its transpose, as this product wants it: what is summed over comes last."""
        if not cast.is_symmetric or hadamard:
            along = tensor.t() if transposed else tensor
            return self._quantize(role, random_hadamard(along, hadamard) if hadamard else along, cast)
        if (role, cast) not in self.made:
            self.made[role, cast] = self._quantize(role, tensor, cast)
        made = self.made[role, cast]
        return made.transposed() if transposed else made

    def _quantize(self, role: Role, tensor: Tensor, cast: Cast) -> Quantized:
        count = is_recording()
        if self.history is None or not tensor.numel():
            return quantize(tensor, cast, generator=self.generator, count=count)
        amax = self.history.amax_for(role, cast.element)
        made = quantize(tensor, cast, amax=amax, generator=self.generator, count=count)
        self.history.remember(role, made.amax)
        return made
