"""The recipes that models are trained with, each with the place its definition comes from."""

from __future__ import annotations

from typing import Any

from amp_lessons.arguments import require
from amp_lessons.formats import FORMATS
from amp_lessons.fp8.accumulators import Accumulation
from amp_lessons.fp8.recipes import ROW, Cast, Product, Recipe
from amp_lessons.text.nearest import did_you_mean

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
