"""Wrong and right ways to cast with a scale."""

from __future__ import annotations

import math

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("scaled_cast")
wrong = TABLE.mutant
right = TABLE.variant

AMAX = "x.abs().max() if x.numel() else x.new_zeros(())"
SCALE = "amax.clamp(min=1e-30) / torch.finfo(dtype).max"
VALUES = "(x / scale).to(dtype)"
RETURN = f"    return {VALUES}, scale\n"
FLOAT = "    x = x.float()\n"

wrong(
    "a_plain_cast",
    "range_unused",
    "by a scale of 1 the largest",
    (RETURN, "    return x.to(dtype), torch.tensor(1.0)\n"),
)
wrong("scale_beside_a_plain_cast", "wrong_cast", "where x / scale is", (VALUES, "x.to(dtype)"))
wrong(
    "returns_the_multiplier",
    "wrong_cast",
    "where x / scale is",
    (RETURN, f"    return {VALUES}, 1 / scale\n"),
)
wrong("multiplies_by_the_scale", "wrong_cast", "where x / scale is", ("x / scale", "x * scale"))
wrong(
    "inverse_scale",
    "wrong_cast",
    "where x / scale is",
    (SCALE, "torch.finfo(dtype).max / amax.clamp(min=1e-30)"),
    ("x / scale", "x * scale"),
)
wrong("scale_squared", "wrong_cast", "where x / scale is", (RETURN, f"    return {VALUES}, scale**2\n"))
wrong("amax_per_element", "wrong_return_type", "one number as scale", (AMAX, "x.abs()"))
wrong(
    "amax_per_row",
    "wrong_return_type",
    "one number as scale",
    (AMAX, "x.abs().amax(-1, keepdim=True) if x.numel() else x.new_zeros(())"),
)
wrong("signs_forgotten", "saturates", "above 448", (AMAX, "x.max() if x.numel() else x.new_zeros(())"))
wrong("mean_decides", "saturates", "lands at", (AMAX, "x.abs().mean() if x.numel() else x.new_zeros(())"))
wrong(
    "mean_decides_and_clamps",
    "saturates",
    "lands at",
    (AMAX, "x.abs().mean() if x.numel() else x.new_zeros(())"),
    (VALUES, "(x / scale).clamp(-448, 448).to(dtype)"),
)
wrong("norm_decides", "range_unused", "lands at 12.17", (AMAX, "x.norm()"))
wrong("to_one", "range_unused", "lands at 1", (" / torch.finfo(dtype).max", " * 1.0"))
wrong("e4m3s_limit_for_both", "range_unused", "fp8_e5m2", ("torch.finfo(dtype).max", "448.0"))
wrong("e5m2s_limit_for_both", "saturates", "fp8_e4m3", ("torch.finfo(dtype).max", "57344.0"))
wrong("limit_of_480", "saturates", "480", ("torch.finfo(dtype).max", "480.0"))
wrong(
    "floor_of_the_exponent",
    "saturates",
    "numbers up to 1.94",
    (SCALE, "2.0 ** (amax.clamp(min=1e-30).log2().floor() - math.floor(math.log2(torch.finfo(dtype).max)))"),
    ("import torch\n", "import math\n\nimport torch\n"),
)
wrong(
    "power_of_two_below",
    "saturates",
    "lands at",
    (SCALE, f"2.0 ** ({SCALE}).log2().floor()"),
)
wrong("nearest_power_of_two", "saturates", "lands at", (SCALE, f"2.0 ** ({SCALE}).log2().round()"))
wrong("nan_at_zero", "zero_amax", "for zeros", (".clamp(min=1e-30)", ""))
wrong("a_floor_as_torchaos", "range_unused", "lands at 4.48e-14", ("1e-30", "1e-12"))
wrong(
    "a_floor_under_the_scale",
    "range_unused",
    "lands at 100",
    (SCALE, "(amax / torch.finfo(dtype).max).clamp(min=1e-30)"),
)
wrong("first_row_decides", "saturates", "lands at", ("x.abs().max()", "x.flatten()[:40].abs().max()"))
wrong(
    "only_zero_is_replaced",
    "scale_beyond_fp32",
    "subnormal",
    (SCALE, "torch.where(amax == 0, 1.0, amax) / torch.finfo(dtype).max"),
    ("x / scale", "x * (1 / scale)"),
)
wrong("breaks_on_empty", "raised", "an empty tensor", (AMAX, "x.abs().max()"))
wrong(
    "overflow_left_out",
    "inf_hidden",
    "stands for",
    (AMAX, "x.abs().nan_to_num(0, 0, 0).max() if x.numel() else x.new_zeros(())"),
    (VALUES, "(x / scale).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)"),
)
wrong(
    "overflow_left_out_for_the_cast_to_see",
    "inf_hidden",
    "from 2.13 on",
    (AMAX, "x.abs().nan_to_num(0, 0, 0).max() if x.numel() else x.new_zeros(())"),
)
wrong("not_finite_is_zero", "inf_hidden", "stands for 0", (FLOAT, "    x = x.float().nan_to_num(0, 0, 0)\n"))
wrong("in_the_inputs_dtype", "computed_in_16_bits", "bfloat16", (FLOAT, ""))
wrong(
    "scale_alone_in_fp32",
    "computed_in_16_bits",
    "rounded twice",
    (FLOAT, ""),
    (" / torch.finfo", ".float() / torch.finfo"),
)
wrong(
    "rounded_to_bf16_first",
    "computed_in_16_bits",
    "rounded twice",
    (VALUES, "(x / scale).bfloat16().to(dtype)"),
)
wrong("whole_numbers", "wrong_cast", "where x / scale is", (VALUES, "(x / scale).round().to(dtype)"))
wrong("truncated", "wrong_cast", "where x / scale is", (VALUES, "(x / scale * (1 - 2**-4)).to(dtype)"))
wrong("in_place", "inputs_changed", "in place", (VALUES, "x.div_(scale).to(dtype)"))
wrong("values_alone", "wrong_return_type", "one number as scale", (RETURN, f"    return {VALUES}\n"))
wrong("scale_first", "wrong_return_type", "as values", (RETURN, f"    return scale, {VALUES}\n"))
wrong("always_e4m3", "wrong_return_type", "float8_e5m2", (VALUES, "(x / scale).to(torch.float8_e4m3fn)"))
wrong("values_in_fp32", "wrong_return_type", "float32", (VALUES, "(x / scale).to(dtype).float()"))
wrong("flattened", "wrong_return_type", "of shape", (VALUES, "(x / scale).flatten().to(dtype)"))
wrong("nothing_returned", "wrong_return_type", "None", (RETURN, ""))
wrong("scale_of_nan", "no_scale", "no scale", (RETURN, f"    return {VALUES}, scale * torch.nan\n"))


right("the_solution")
right(
    "clamped_before", (VALUES, "(x / scale).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)")
)
right("a_floor_of_fp32s_smallest", ("1e-30", "torch.finfo(torch.float32).tiny * 1e6"))
right("half_the_range", (SCALE, f"2 * ({SCALE})"))
right("scale_as_a_float", (RETURN, f"    return {VALUES}, scale.item()\n"))
right("in_fp64", (FLOAT, "    x = x.double()\n"))
right("a_scale_with_a_dimension", (RETURN, f"    return {VALUES}, scale.reshape(1)\n"))
right("power_of_two", (SCALE, f"2.0 ** ({SCALE}).log2().ceil()"))


@TABLE.correct()
def multiplies_by_a_power_of_two(x, dtype):
    amax = x.abs().max().item() if x.numel() else 0.0
    if not math.isfinite(amax):
        return x.float().mul(torch.nan).to(dtype), torch.tensor(torch.nan)
    exponent = math.floor(math.log2(torch.finfo(dtype).max / max(amax, 1e-30)))
    return (x.float() * 2.0**exponent).to(dtype), 2.0**-exponent


@TABLE.correct()
def leaves_nan_where_it_is(x, dtype):
    """Casts all finite numbers as if no other were there."""
    finite = torch.where(x.isfinite(), x.float(), 0.0)
    amax = finite.abs().max() if x.numel() else torch.tensor(0.0)
    scale = torch.where(amax < 1e-30, 1.0, amax / torch.finfo(dtype).max)
    return torch.where(x.isfinite(), finite / scale, torch.nan).to(dtype), scale


@TABLE.correct()
def copied_into_the_dtype(x, dtype):
    amax = torch.cat([x.float().flatten(), torch.zeros(1)]).abs().amax()
    scale = amax.clamp(min=1e-35) / torch.finfo(dtype).max
    return torch.empty(x.shape, dtype=dtype).copy_(x.float() / scale), scale


@TABLE.correct()
def saturates_nothing_and_returns_a_list(x, dtype):
    limit = torch.finfo(dtype).max
    amax = torch.linalg.vector_norm(x.float().flatten(), torch.inf) if x.numel() else torch.zeros(())
    multiplier = limit / amax.clamp(min=1e-30)
    return [(x.float() * multiplier).type(dtype), 1 / multiplier]
