"""Cast, product and layer: all that training in few bits computes, from the tensor to its gradients.

A cast divides the elements of a block by their scale and rounds what is left. A product takes both operands
back and multiplies in fp32, or hands them to the device's kernel. A layer makes three such products; its
derivative is that of the plain layer, each of whose products gets operands that are cast: what a cast did is
taken for a constant, as every such training does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from amp_lessons._base.arguments import require
from amp_lessons.devices import without_autocast
from amp_lessons.formats import FORMATS, FloatFormat, rounding
from amp_lessons.fp8.accumulators import accumulate, few_bits
from amp_lessons.fp8.products import DTYPES, UNCAST, Engine, choose_engine, multiply, require_engine
from amp_lessons.fp8.recipes import FP32, PRODUCTS, Accumulation, Cast, Recipe, Role, require_recipe
from amp_lessons.fp8.recording import is_recording, note
from amp_lessons.fp8.scale_rules import AmaxHistory, scales
from amp_lessons.fp8.transforms import random_hadamard

# --- the cast: a tensor in a small format beside its scales, and what that cost


@dataclass(frozen=True)
class Quantized:
    """A tensor in a small format beside its scales: what it stands for is values · scales · tensor_scale.

    ``values`` are float32 numbers of the element format, in the shape of the tensor. ``scales`` and ``amax``
    (largest magnitudes) have one entry per block: (blocks of rows, blocks of columns), where all dimensions
    but the last count as rows. ``saturated`` counts elements that lay beyond the last value, by half its
    spacing or more, and became it; ``underflowed`` those that were not zero and became it. Both are None
    where nobody asked for them.
    """

    cast: Cast
    values: Tensor
    scales: Tensor
    tensor_scale: Tensor
    amax: Tensor
    saturated: int | None = None
    underflowed: int | None = None

    def dequantize(self) -> Tensor:
        """Return the float32 tensor that this stands for."""
        if not self.values.numel():
            return self.values.clone()
        scale = self.scales * self.tensor_scale
        if scale.numel() == 1:
            return (self.values * scale.reshape(())).contiguous()
        blocks = _split(self.values, self.cast)
        return _join(blocks * scale[:, None, :, None], self.values)

    @property
    def element_scales(self) -> Tensor:
        """The factor that takes each element back: float32, in the shape of the tensor."""
        return replace(self, values=torch.ones_like(self.values)).dequantize()

    def transposed(self) -> Quantized:
        """Return the transpose of a matrix.

        Raises ValueError where blocks are not as wide as they are high: who needs the transpose then casts
        the transposed tensor, not what a first cast has left of it.
        """
        if not self.cast.is_symmetric or self.values.dim() != 2:
            raise ValueError(
                f"only a matrix with square blocks can be transposed, not a tensor of {self.values.dim()} "
                f"dimensions with scales per {self.cast.granularity}: cast its transpose"
            )
        return replace(self, values=self.values.t(), scales=self.scales.t(), amax=self.amax.t())

    @property
    def bytes_of_values(self) -> float:
        """The bytes of the elements when they are stored without gaps."""
        return self.values.numel() * self.cast.element.bits / 8

    @property
    def bytes_of_scales(self) -> float:
        """The bytes of all scales; nothing under the rule "none"."""
        if self.cast.rule == "none":
            return 0.0
        tensor_scale_bits = FORMATS["fp32"].bits * self.cast.has_tensor_scale
        return (self.scales.numel() * self.cast.scale.bits + tensor_scale_bits) / 8


def quantize(
    x: Tensor,
    cast: Cast,
    *,
    amax: Tensor | None = None,
    generator: torch.Generator | None = None,
    count: bool = True,
) -> Quantized:
    """Return ``x`` (fp32, fp16 or bf16, any shape) in few bits; every dimension but the last counts as rows.

    The last block of a side that the block's size does not divide is a shorter one. What is too large
    saturates, on every version of PyTorch; what shares a scale with an infinity or a NaN becomes NaN.
    ``amax`` is what the scale is made of instead of the largest magnitude of each block, one number for all
    or one each: an infinity then saturates. ``generator`` is for casts that round stochastically,
    ``count=False`` saves the counting. Raises TypeError or ValueError for anything else.
    """
    require(cast, Cast, "cast", "an fp8.Cast such as fp8.Cast(block=fp8.ROW)")
    require(generator, (torch.Generator, type(None)), "generator", "a torch.Generator, or None")
    require(count, bool, "count", "True or False")
    x = rounding.as_float32(x)
    if not x.numel():
        return _nothing(x, cast)
    blocks = _split(x, cast)
    seen = blocks.abs().amax((1, 3))
    used = scales(seen if amax is None else _expand(amax, seen), cast)
    scaled = blocks * used.multiplier[:, None, :, None]
    within = scaled.clamp(-cast.element.max, cast.element.max)
    if cast.stochastic:
        rounded = cast.element.round_stochastically(within, generator)
    else:  # on a CPU three times as fast as the cast there and back
        rounded = cast.element.quantize_by_rounding(within)
    saturated = underflowed = None
    if count:
        saturated = int((scaled.abs() >= first_beyond(cast.element)).sum())
        underflowed = int(((rounded == 0) & (blocks != 0)).sum())
    return Quantized(cast, _join(rounded, x), used.scale, used.tensor_scale, seen, saturated, underflowed)


def first_beyond(element: FloatFormat) -> float:
    """Return the smallest magnitude that saturates: half a spacing beyond the last value."""
    return element.max + element.spacing(element.max) / 2


def _grid(rows: int, columns: int, cast: Cast) -> tuple[int, int]:
    """Return how high and how wide a block is."""
    high, wide = cast.block
    return rows if high is None else high, columns if wide is None else wide


def _split(x: Tensor, cast: Cast) -> Tensor:
    """View a tensor as (blocks of rows, rows, blocks of columns, columns), filled up with zeros."""
    matrix = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    rows, columns = matrix.shape
    high, wide = _grid(rows, columns, cast)
    missing = (0, -columns % wide, 0, -rows % high)
    if any(missing):
        matrix = pad(matrix, missing)
    return matrix.reshape(matrix.shape[0] // high, high, matrix.shape[1] // wide, wide)


def _join(blocks: Tensor, like: Tensor) -> Tensor:
    if blocks.shape[2] == 1 and blocks.numel() == like.numel():
        return blocks.reshape(like.shape)  # one block wide and nothing filled up: the elements are in order
    columns = like.shape[-1] if like.dim() else 1
    matrix = blocks.flatten(2).flatten(0, 1)
    return matrix[: like.numel() // columns, :columns].reshape(like.shape)


def _expand(amax: Tensor, seen: Tensor) -> Tensor:
    require(amax, Tensor, "amax", "a tensor with one largest magnitude, or with one per block")
    try:
        return amax.detach().to(seen).expand_as(seen)
    except RuntimeError:
        raise ValueError(
            f"amax is one number, or one per block, here {tuple(seen.shape)}, not {tuple(amax.shape)}"
        ) from None


def _nothing(x: Tensor, cast: Cast) -> Quantized:
    columns = x.shape[-1]
    rows = x[..., 0].numel() if columns else 0
    high, wide = (max(size, 1) for size in _grid(rows, columns, cast))
    no_scales = x.new_ones(-(-rows // high), -(-columns // wide))
    return Quantized(cast, x, no_scales, x.new_ones(()), no_scales * 0, 0, 0)


# --- the product of two such tensors


@dataclass(frozen=True)
class ScaledProduct:
    """A product of two scaled tensors (rows, columns), and what computed it."""

    values: Tensor
    engine: Engine


def scaled_product(
    left: Quantized,
    right: Quantized,
    *,
    accumulation: Accumulation = FP32,
    dtype: torch.dtype = torch.float32,
    engine: str = "auto",
) -> ScaledProduct:
    """Return ``left`` (rows, inner) times the transpose of ``right`` (columns, inner).

    The emulation takes both operands back to fp32, multiplies there (never in TF32) and rounds to ``dtype``
    once, as a kernel does. Where ``accumulation`` has few bits, what is added up are the elements; scales per
    block come to it in fp32, wherever one ends. ``engine`` "device" wants the device's kernel, "auto" takes
    it where it is the faster one. Raises TypeError or ValueError for anything else, RuntimeError where
    "device" has no such kernel.
    """
    for name, operand in (("left", left), ("right", right)):
        require(operand, Quantized, name, "a tensor that fp8.quantize returned")
    if left.values.dim() != 2 or right.values.dim() != 2 or left.values.shape[1] != right.values.shape[1]:
        shapes = f"{tuple(left.values.shape)} and {tuple(right.values.shape)}"
        raise ValueError(f"left and right are matrices (rows, inner) and (columns, inner), not {shapes}")
    chosen = choose_engine(left.cast, right.cast, accumulation, left.values.device, dtype, engine)
    if chosen.name == "device" and min(*left.values.shape, right.values.shape[0]):
        return ScaledProduct(multiply(left, right, dtype), chosen)
    if accumulation.bits is None:
        return ScaledProduct(accumulate(left.dequantize(), right.dequantize()).to(dtype), chosen)
    return ScaledProduct(_in_few_bits(left, right, accumulation).to(dtype), chosen)


def _in_few_bits(left: Quantized, right: Quantized, accumulation: Accumulation) -> Tensor:
    inner = left.values.shape[1]
    ends = (left.cast.block[1], right.cast.block[1], accumulation.promote_every)
    interval = math.gcd(*(each or 0 for each in ends)) or max(inner, 1)
    total = left.values.new_zeros(left.values.shape[0], right.values.shape[0])
    if not total.numel():
        return total
    for start in range(0, inner, interval):
        a, b = (operand.values[:, start : start + interval] for operand in (left, right))
        total += few_bits(a, b, accumulation) * _scale_at(left, start) * _scale_at(right, start).t()
    return total


def _scale_at(operand: Quantized, column: int) -> Tensor:
    """Return the scale of every row for the block that this column is in, as (rows, 1)."""
    high, wide = operand.cast.block
    scale = (operand.scales * operand.tensor_scale)[:, column // wide if wide else 0]
    rows = operand.values.shape[0]
    return scale.repeat_interleave(high or rows)[:rows, None]


# --- the layer: three products, and which operand of each is cast how, how often, and along which side


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
    history = history if recipe.amax_history else None
    step = _Step(recipe, history, generator, require_engine(engine), _result_dtype(x), layer)
    return _Linear.apply(x, weight, bias, step)


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


def _result_dtype(x: Tensor) -> torch.dtype:
    kind = x.device.type
    in_autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if in_autocast else x.dtype


# Which operands a product needs transposed, so that what it sums over comes last in both
_TRANSPOSED = {"output": (False, False), "input_gradient": (False, True), "weight_gradient": (True, True)}


@dataclass(frozen=True)
class _Step:
    """One layer's way of computing in one step; ``dtype`` is that of its output, and of what is not cast.

    A cast whose blocks are as wide as high serves both products that need the tensor, and is ``made`` once: a
    history counts it once. Any other is made again along the other side, from the tensor itself, for casting
    what a first cast has left would round twice.
    """

    recipe: Recipe
    history: AmaxHistory | None
    generator: torch.Generator | None
    engine: str
    dtype: torch.dtype
    layer: str
    made: dict[tuple[Role, Cast], Quantized] = field(default_factory=dict)

    def product(self, name: str, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
        """Compute one of the three products to ``dtype``: cast as the recipe says, or plainly."""
        product, turned = self.recipe.products[name], _TRANSPOSED[name]
        if product is None:
            note(self.layer, name, UNCAST)
            plain = (each.t() if turn else each for each, turn in zip((left, right), turned, strict=True))
            return F.linear(*(each.to(self.dtype) for each in plain)).to(dtype)
        first, second = PRODUCTS[name]
        a = self._operand(first, left, product.left, product.hadamard, turned[0])
        b = self._operand(second, right, product.right, product.hadamard, turned[1])
        accumulation = self.recipe.accumulation
        made = scaled_product(a, b, accumulation=accumulation, dtype=dtype, engine=self.engine)
        note(self.layer, name, made.engine, (first, a), (second, b))
        return made.values

    def _operand(
        self, role: Role, tensor: Tensor, cast: Cast, hadamard: int | None, transposed: bool
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


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, step: _Step) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.step, ctx.bias_dtype = step, None if bias is None else bias.dtype
        with without_autocast(x.device.type):
            made = step.product("output", _rows(x).to(step.dtype), weight, step.dtype)
            # After the product was rounded, as in torchao: most kernels take no bias, or not for every dtype
            made = made if bias is None else made + bias.to(step.dtype)
            return made.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        step = replace(ctx.step, made=dict(ctx.step.made))  # another backward pass casts its own gradient
        rows, inputs = _rows(gradient), _rows(x).to(step.dtype)
        to_x = to_weight = to_bias = None
        with without_autocast(x.device.type):
            if ctx.needs_input_grad[0]:
                to_x = step.product("input_gradient", rows, weight, x.dtype).reshape(x.shape)
            if ctx.needs_input_grad[1]:
                to_weight = step.product("weight_gradient", rows, inputs, weight.dtype)
            if ctx.needs_input_grad[2]:
                to_bias = rows.sum(0, dtype=torch.float32).to(ctx.bias_dtype)
        return to_x, to_weight, to_bias, None


def _rows(x: Tensor) -> Tensor:
    """Return a tensor as a matrix of its last dimension; -1 could not be made out where there is nothing."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class ScaledLinear(nn.Linear):
    """``nn.Linear`` by ``fp8.linear``: the same parameters under the same names, master weights as they are.

    A recipe with a history of amax adds ``history``, whose buffers belong into a checkpoint.
    """

    recipe: Recipe
    engine: str
    layer: str
    history: AmaxHistory | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        recipe: str | Recipe = "tensorwise",
        engine: str = "auto",
        **where: Any,
    ) -> None:
        """Make a layer like ``nn.Linear``; ``where`` is its ``device`` and ``dtype``."""
        super().__init__(in_features, out_features, bias, **where)
        self.set_recipe(recipe, engine)

    def set_recipe(self, recipe: str | Recipe, engine: str = "auto", layer: str = "") -> None:
        """Compute by another recipe from now on, with nothing remembered."""
        self.recipe, self.engine, self.layer = require_recipe(recipe), require_engine(engine), layer
        self.history = None
        if self.recipe.amax_history:
            self.history = AmaxHistory(self.recipe.amax_history).to(self.weight.device).train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return linear(
            x, self.weight, self.bias, self.recipe, history=self.history, engine=self.engine, layer=self.layer
        )

    def extra_repr(self) -> str:
        """Add the recipe to what ``nn.Linear`` prints."""
        return f"{super().extra_repr()}, recipe={self.recipe.name}, engine={self.engine}"
