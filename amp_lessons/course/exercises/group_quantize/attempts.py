"""Wrong and right ways to quantise weights by groups."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("group_quantize")
wrong = TABLE.mutant
right = TABLE.variant

REFUSAL = '    if not weight.isfinite().all():\n        raise ValueError("INT4 has no code for inf or NaN")\n'
FLOAT = "weight.float()"
PADDED = "torch.nn.functional.pad(weight.float(), (0, -columns % group_size))"
GROUPS = "padded.reshape(rows, -1, group_size)"
AMAX = "groups.abs().amax(-1)"
SCALES = "(amax / 7).clamp(min=1e-30).bfloat16()"
QUOTIENTS = "(groups / scales.float()[..., None])"
CODES = f"{QUOTIENTS}.round().clamp(-8, 7).to(torch.int8)"
RETURN = "codes.reshape(rows, -1)[:, :columns], scales"

wrong(
    "scale_per_row",
    "other_scale",
    "it, it is 1.36",
    (AMAX, "groups.abs().amax((-1, -2), keepdim=True)[..., 0].expand(groups.shape[:2])"),
)
wrong(
    "one_scale_for_all",
    "other_scale",
    "it, it is 0.274",
    (AMAX, "groups.abs().amax().expand(groups.shape[:2])"),
)
wrong("signs_forgotten", "other_scale", "it, it is 50.3", (AMAX, "groups.amax(-1)"))
wrong("mean_decides", "other_scale", "it, it is 57.7", (AMAX, "groups.abs().mean(-1)"))
wrong("three_sigma", "other_scale", "it, it is 13.6", (AMAX, "groups.std(-1) * 2"))
wrong("all_sixteen_codes", "other_scale", "it, it is 8.03", ("amax / 7", "amax / 8"))
wrong(
    "largest_takes_minus_8",
    "other_scale",
    "it, it is 8.03",
    (AMAX, "groups.gather(-1, groups.abs().argmax(-1, keepdim=True))[..., 0].abs() * 7 / 8"),
)
wrong("of_int8", "codes_out_of_range", "-127", ("amax / 7", "amax / 127"), (".clamp(-8, 7)", ""))
wrong("not_clamped", "codes_out_of_range", "to 8", ("amax / 7", "amax / 8"), (".clamp(-8, 7)", ""))
wrong("unsigned", "codes_out_of_range", "to 15", (".clamp(-8, 7)", ".add(8).clamp(0, 15)"))
wrong("of_three_bits", "other_scale", "it, it is 2.99", ("amax / 7", "amax / 3"))
wrong("twice_the_range", "other_scale", "it, it is 3.49", ("amax / 7", "2 * amax / 7"))
wrong(
    "power_of_two",
    "other_scale",
    "it, it is 3.5",
    (SCALES, "2.0 ** (amax / 7).clamp(min=1e-30).log2().ceil().bfloat16()"),
)
wrong("truncated", "wrong_codes", "off by", (".round()", ""))
wrong("floored", "wrong_codes", "off by 1 of its scale", (".round()", ".floor()"))
wrong(
    "scale_rounded_afterwards",
    "wrong_codes",
    "off by 0.516 of its scale",
    (SCALES, "(amax / 7).clamp(min=1e-30)"),
    (RETURN, f"{RETURN}.bfloat16()"),
)
wrong("in_the_weights_dtype", "wrong_codes", "of its scale", (FLOAT, "weight"), ("scales.float()", "scales"))
wrong("quotients_in_bf16", "wrong_codes", "of its scale", (".round()", ".bfloat16().round()"))
wrong("inverse", "other_scale", "it, it is 0.00183", ("amax / 7", "7 / amax"), ("groups / ", "groups * "))
wrong("zeros_without_a_scale", "zero_amax", "group of zeros", (".clamp(min=1e-30)", ""))
wrong("a_floor_of_a_thousandth", "other_scale", "it, it is", ("1e-30", "1e-3"))
wrong("through_fp16", "group_scale_lost", "is inf", ("amax / 7", "(amax / 7).half().float()"))
wrong("nan_not_refused", "not_finite_quantised", "no code", (REFUSAL, ""))
wrong(
    "nan_becomes_zero",
    "not_finite_quantised",
    "see it again",
    (REFUSAL, "    weight = weight.nan_to_num(0, 0, 0)\n"),
)
wrong("asserts_instead", "raised", "AssertionError", (REFUSAL, "    assert weight.isfinite().all()\n"))
wrong(
    "groups_of_outputs",
    "other_scale",
    "it, it is 0.339",
    (PADDED, "torch.nn.functional.pad(weight.float().t(), (0, -rows % group_size))"),
    (GROUPS, "padded.reshape(columns, -1, group_size)"),
    ("codes.reshape(rows, -1)[:, :columns]", "codes.reshape(columns, -1)[:, :rows].t()"),
)
wrong(
    "groups_interleaved",
    "other_scale",
    "it, it is 3.04",
    (GROUPS, "padded.reshape(rows, group_size, -1).transpose(1, 2)"),
    ("codes.reshape(rows, -1)", "codes.transpose(1, 2).reshape(rows, -1)"),
)
wrong("order_lost", "wrong_codes", "off by 14", (CODES, f"{CODES}.flip(-1)"))
wrong(
    "power_of_two_below",
    "other_scale",
    "it, it is 13.9",
    (SCALES, "2.0 ** (amax / 7).clamp(min=1e-30).log2().floor().bfloat16()"),
)
wrong(
    "last_group_cut_off",
    "wrong_return_type",
    "as codes",
    (PADDED, "weight.float()[:, : columns // group_size * group_size]"),
)
wrong("padding_kept", "wrong_return_type", "as codes", ("[:, :columns]", ""))
wrong("grouped_codes", "wrong_return_type", "as codes", ("codes.reshape(rows, -1)[:, :columns]", "codes"))
wrong("scales_in_fp32", "wrong_return_type", "float32", (RETURN, f"{RETURN}.float()"))
wrong("codes_in_fp32", "wrong_return_type", "torch.float32", (".to(torch.int8)", ""))
wrong(
    "dequantised",
    "wrong_return_type",
    "pair",
    (RETURN, "codes.reshape(rows, -1)[:, :columns] * scales.repeat_interleave(group_size, 1)[:, :columns]"),
)
wrong("whole_groups_only", "raised", "unflatten", (GROUPS, "weight.float().unflatten(1, (-1, group_size))"))
wrong("in_place", "inputs_changed", "in place", (REFUSAL, f"{REFUSAL}    weight.mul_(2).div_(4)\n"))


right("the_solution")
right("without_a_clamp", (".clamp(-8, 7)", ""))
right("zeros_get_a_scale_of_one", (SCALES, "torch.where(amax < 1e-30, 7.0, amax).div(7).bfloat16()"))
right("in_fp64", (FLOAT, "weight.double()"), ("scales.float()", "scales.double()"))
right("a_little_above_7", ("amax / 7", "amax / 7.4"))
right("lists_are_pairs", (RETURN, f"[{RETURN}]"))


@TABLE.correct()
def group_by_group(weight, group_size):
    if bool((weight - weight).ne(0).any()):  # inf - inf is NaN, which equals nothing
        raise ValueError
    codes, scales = [], []
    for part in weight.float().split(group_size, dim=1):
        scale = part.abs().amax(1, keepdim=True).clamp(min=1e-29).div(7).to(torch.bfloat16)
        codes.append(torch.round(part / scale.float()).to(torch.int8))
        scales.append(scale)
    return torch.cat(codes, 1), torch.cat(scales, 1)


@TABLE.correct()
def scales_repeated(weight, group_size):
    """Gives every weight its scale, and never reshapes."""
    if weight.isnan().any() or weight.isinf().any():
        raise ValueError("not finite")
    columns = weight.shape[1]
    amax = torch.stack([part.abs().amax(1) for part in weight.float().split(group_size, 1)], 1)
    scales = torch.clamp(amax, min=1e-30).mul(1 / 7).bfloat16()
    each = scales.float().repeat_interleave(group_size, 1)[:, :columns]
    return torch.div(weight.float(), each).round().char(), scales


@TABLE.mistake("other_scale", "it is 8")
def the_code_of_minus_eight_used(weight, group_size):
    if not weight.isfinite().all():
        raise ValueError("not finite")
    columns = weight.shape[1]
    groups = torch.nn.functional.pad(weight.float(), (0, -columns % group_size)).unflatten(
        1, (-1, group_size)
    )
    scales = torch.maximum(groups.amax(-1) / 7, -groups.amin(-1) / 8)
    scales = scales.masked_fill(scales == 0, 1.0).bfloat16()
    codes = (groups / scales.float()[..., None]).round().clamp(-8, 7)
    return codes.flatten(1)[:, :columns].to(torch.int8), scales
