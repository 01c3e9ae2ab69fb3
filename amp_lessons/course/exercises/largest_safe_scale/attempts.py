"""Wrong and right answers for the largest safe scale."""

from __future__ import annotations

import math

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("largest_safe_scale")
wrong = TABLE.mutant
right = TABLE.variant

LARGEST = "max(gradient.abs().max().item() for gradient in gradients)"
LIMIT = "math.nextafter(65520.0, 0.0)"
RETURN = "    return 2.0 ** (exponent - 1)\n"
AS_A_TENSOR = (RETURN, "    import torch\n    return torch.tensor(2.0 ** (exponent - 1))\n")

wrong("rounds_up", "overflows", "fp16 makes inf", (RETURN, "    return 2.0**exponent\n"))
wrong("half_of_it", "too_small", "at twice this scale", (RETURN, "    return 2.0 ** (exponent - 2)\n"))
wrong("no_power_of_two", "not_a_power_of_two", "power of two", (RETURN, "    return 65504 / largest\n"))
wrong("first_tensor_only", "overflows", "fp16 makes inf", (LARGEST, "gradients[0].abs().max().item()"))
wrong(
    "mean_decides",
    "overflows",
    "fp16 makes inf",
    (LARGEST, "max(gradient.abs().mean().item() for gradient in gradients)"),
)
wrong(
    "norm_decides",
    "too_small",
    "at twice this scale",
    (LARGEST, "math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients))"),
)
wrong(
    "smallest_decides",
    "overflows",
    "fp16 makes inf",
    (LARGEST, "min(gradient.abs().min().item() for gradient in gradients) or 1e-9"),
)
wrong(
    "capped_at_default",
    "too_small",
    "65536 instead of",
    (RETURN, "    return min(2.0 ** (exponent - 1), 65536.0)\n"),
)
wrong(
    "never_below_one",
    "overflows",
    "too large for fp16 as they are (1 instead of 0.0625)",
    (RETURN, "    return max(2.0 ** (exponent - 1), 1.0)\n"),
)
wrong("limit_of_65521", "overflows", "becomes -65521 at this scale", (LIMIT, "65521"))
wrong("limit_of_65535", "overflows", "fp16 makes inf", (LIMIT, "65535"))
wrong("limit_of_65536", "overflows", "fp16 makes inf", (LIMIT, "65536"))
wrong("limit_included", "overflows", "becomes 65520 at this scale", (LIMIT, "65520"))
wrong(
    "log2_rounds_up",
    "overflows",
    "becomes 65520 at this scale",
    (RETURN, "    return 2.0 ** math.floor(math.log2(limit / largest))\n"),
)
wrong("limit_of_bfloat16", "overflows", "fp16 makes inf", (LIMIT, "3.4e38"))
wrong(
    "limit_excluded",
    "too_small",
    "times 512 is 65504",
    (LIMIT, "65503"),
)
wrong("changes_gradients", "inputs_changed", "in place", (".abs()", ".abs_()"))
wrong("returns_exponent", "not_a_power_of_two", "power of two", (RETURN, "    return float(exponent - 1)\n"))
wrong("returns_none", "wrong_return_type", "None", (RETURN, ""))
wrong("returns_nan", "not_a_scale", "no scale", (RETURN, "    return float('nan')\n"))
wrong(
    "breaks_on_zeros",
    "raised",
    "a tensor of zeros",
    (LARGEST, "[1 / gradient.abs().max().item() for gradient in gradients] and " + LARGEST),
)


@TABLE.mistake("overflows", "the largest gradient, -")
def signs_forgotten(gradients):
    largest = max(g.max().item() for g in gradients)
    return 2.0 ** math.floor(math.log2(65504 / largest))


right("the_solution")
right("largest_float16", (LIMIT, "65504"), notes=("stricter_limit",))
right("a_limit_between", (LIMIT, "65512"), notes=("stricter_limit",))
right(
    "largest_float16_as_a_tensor",
    (LIMIT, "65504"),
    AS_A_TENSOR,
    notes=("returned_a_tensor", "stricter_limit"),
)
right(
    "as_a_tensor",
    AS_A_TENSOR,
    notes=("returned_a_tensor",),
)


@TABLE.correct()
def by_the_ceiling_of_the_logarithm(gradients):
    largest = max(g.abs().max().item() for g in gradients)
    return 2.0 ** (math.ceil(math.log2(65520 / largest)) - 1)


@TABLE.correct("stricter_limit")
def by_logarithm(gradients):
    return 2.0 ** math.floor(
        math.log2(65504 / torch.cat([g.flatten().float() for g in gradients]).abs().max().item())
    )


@TABLE.correct()
def by_trying(gradients):
    def overflows(scale):
        return any((g.double() * scale).half().isinf().any() for g in gradients)

    scale = 1.0
    while overflows(scale):
        scale /= 2
    while not overflows(scale * 2):
        scale *= 2
    return scale


wrong("last_tensor_only", "overflows", "fp16 makes inf", (LARGEST, "gradients[-1].abs().max().item()"))
wrong(
    "int_for_floor",
    "overflows",
    "fp16 makes inf",
    (RETURN, "    return 2.0 ** int(math.log2(65504 / largest))\n"),
)


@TABLE.mistake("too_small", "tiny gradients")
def tries_from_two_to_the_60th(gradients):
    def is_safe(exponent):
        return all((g.double() * 2.0**exponent).half().isfinite().all() for g in gradients)

    return 2.0 ** next(exponent for exponent in range(60, -60, -1) if is_safe(exponent))


@TABLE.mistake("too_small", "tiny gradients")
def halves_from_two_to_the_126th(gradients):
    scale = torch.tensor(2.0**126)
    while any(not (g * scale).half().isfinite().all() for g in gradients):
        scale /= 2
    return scale.item()


@TABLE.correct()
def tries_all_of_fp32(gradients):
    def is_safe(exponent):
        return all((g.float() * 2.0**exponent).half().isfinite().all() for g in gradients)

    return 2.0 ** next(exponent for exponent in range(127, -127, -1) if is_safe(exponent))


right(
    "as_a_numpy_float",
    (RETURN, "    import numpy\n    return numpy.float32(2.0 ** (exponent - 1))\n"),
    notes=("not_a_float",),
)


@TABLE.mistake("raised", "OverflowError")
def divides_in_the_dtype_of_the_gradients(gradients):
    exponents = [
        torch.log2(torch.full((), 65504.0, dtype=g.dtype) / g.abs().max()) for g in gradients if g.any()
    ]
    return 2.0 ** int(min(exponents).floor())
