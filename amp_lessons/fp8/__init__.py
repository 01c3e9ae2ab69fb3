"""Training in eight and four bits: recipes as data, scaled products, linear layers that compute by them.

A linear layer makes three products: its output, the gradient of its input and that of its weight. Each
operand is divided by a scale and rounded to a small format; the product of what is left is multiplied by both
scales. A scale comes from the largest magnitude (amax) of the elements that share it, now or in earlier
steps. Masters, biases, activations between layers and the optimizer's state stay as they are. A recipe says,
product by product, which format an operand takes, who shares a scale, and how it is found.

Left out, beside torchao and Transformer Engine: weights and optimizer states that are stored in few bits,
collectives in FP8, the products inside of attention, and kernels that cast and multiply in one. What those
libraries compute can be had here on any device, and every cast can be looked at.

- ``recipes``: what a recipe is, and ``RECIPES``, those that models are trained with.
- ``scale_rules``: from the largest magnitude, of this step or of earlier ones, to the scale; ``quantized``: a
  tensor beside its scales.
- ``placement``: where a scale puts a tensor on the number line, and what that costs.
- ``accumulators``: sums in few bits; ``long_sums``: what becomes of them as they get longer.
- ``transforms``: outliers spread.
- ``products``: one product, emulated or by the device's kernel, and which of them ran.
- ``functional`` and ``conversion``: the function, the layer, the whole model; ``recording``: the casts and
  products of a stretch of training.
"""

from amp_lessons.fp8.accumulators import FP32, Accumulation, accumulate
from amp_lessons.fp8.conversion import Conversion, Layer, ScaledLinear, convert
from amp_lessons.fp8.functional import linear
from amp_lessons.fp8.long_sums import LongSums, long_sums
from amp_lessons.fp8.placement import Placement, fitting_exponent, granularities, place, place_by_hand
from amp_lessons.fp8.products import Engine, ScaledProduct, engines, scaled_product
from amp_lessons.fp8.quantized import Quantized, quantize
from amp_lessons.fp8.recipes import PRODUCTS, RECIPES, ROLES, ROW, RULES, TENSOR, Cast, Product, Recipe
from amp_lessons.fp8.recording import CastMade, ProductMade, record
from amp_lessons.fp8.scale_rules import AmaxHistory, Scales, scales
from amp_lessons.fp8.transforms import hadamard, random_hadamard

__all__ = [
    "FP32",
    "PRODUCTS",
    "RECIPES",
    "ROLES",
    "ROW",
    "RULES",
    "TENSOR",
    "Accumulation",
    "AmaxHistory",
    "Cast",
    "CastMade",
    "Conversion",
    "Engine",
    "Layer",
    "LongSums",
    "Placement",
    "Product",
    "ProductMade",
    "Quantized",
    "Recipe",
    "ScaledLinear",
    "ScaledProduct",
    "Scales",
    "accumulate",
    "convert",
    "engines",
    "fitting_exponent",
    "granularities",
    "hadamard",
    "linear",
    "long_sums",
    "place",
    "place_by_hand",
    "quantize",
    "random_hadamard",
    "record",
    "scaled_product",
    "scales",
]
