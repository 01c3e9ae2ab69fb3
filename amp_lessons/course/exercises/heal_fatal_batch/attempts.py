"""Half-mended attention, and unusual right ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_fatal_batch")
wrong = TABLE.mutant
right = TABLE.variant

SCORES = "queries @ keys.transpose(-2, -1) / keys.shape[-1] ** 0.5"
FILL = "torch.where(allowed, scores, torch.finfo(scores.dtype).min)"
WEIGHTS = "torch.where(allowed, scores.softmax(dim=-1), 0)"
RETURN = "return weights @ values"

wrong("lowest_number_only", "masked_row_not_zero", "same weight", (WEIGHTS, "scores.softmax(dim=-1)"))
wrong(
    "exponentials_without_the_largest",
    "faint_keys_wrong",
    "far below the others",
    (FILL, "scores.float()"),
    (WEIGHTS, "scores.exp() * allowed\n    weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)"),
    (RETURN, "return weights.to(values.dtype) @ values"),
)
wrong(
    "minus_infinity",
    "masked_row_nan",
    "subtracts -inf from -inf",
    (FILL, "scores.masked_fill(~allowed, float('-inf'))"),
    (WEIGHTS, "scores.softmax(dim=-1)"),
)
wrong(
    "nan_to_num",
    "nan_hidden",
    "NaN went in",
    (FILL, "scores.masked_fill(~allowed, float('-inf'))"),
    (WEIGHTS, "scores.softmax(dim=-1).nan_to_num(0.0)"),
)
wrong(
    "nan_to_num_at_the_end",
    "nan_hidden",
    "NaN went in",
    (RETURN, "return (weights @ values).nan_to_num(0.0)"),
)
wrong("masked_value_raises", "raised", "without overflow", (FILL, "scores.masked_fill(~allowed, -1e9)"))
wrong(
    "minus_ten_thousand",
    "faint_keys_wrong",
    "far below the others",
    (FILL, "torch.where(allowed, scores, -1e4)"),
)
wrong(
    "mask_added",
    "faint_keys_wrong",
    "far below the others",
    (FILL, "scores + (~allowed).to(scores.dtype) * -1e4"),
)
wrong(
    "lowest_number_added",
    "attention_gradients",
    "-45",
    (FILL, "scores + (~allowed).to(scores.dtype) * torch.finfo(scores.dtype).min"),
)
wrong(
    "a_lower_number_added",
    "faint_keys_wrong",
    "far below the others",
    (FILL, "scores - (~allowed).to(scores.dtype) * 3e4"),
)
wrong(
    "lowest_number_of_fp16",
    "faint_keys_wrong",
    "bf16, two allowed keys far below",
    (FILL, "torch.where(allowed, scores.float(), -65504.0)"),
    (WEIGHTS, "torch.where(allowed, scores.softmax(dim=-1), 0).to(values.dtype)"),
)
wrong("scores_clamped", "faint_keys_wrong", "far below the others", (SCORES, f"({SCORES}).clamp(min=-1e4)"))
wrong(
    "scores_clamped_on_both_sides",
    "faint_keys_wrong",
    "far below the others",
    (SCORES, f"({SCORES}).clamp(-50, 50)"),
)
wrong("scores_clamped_above", "wrong_attention", "far above", (SCORES, f"({SCORES}).clamp(max=3e4)"))
wrong(
    "masked_behind_the_largest_score",
    "faint_keys_wrong",
    "far below the others",
    (FILL, "(scores.float() - scores.float().amax(-1, keepdim=True)).exp() * allowed"),
    (WEIGHTS, "(scores / scores.sum(-1, keepdim=True).clamp(min=1e-30)).to(values.dtype)"),
)
wrong(
    "weights_divided_by_almost_nothing",
    "attention_gradients",
    "gradients are not finite",
    (FILL, "scores.softmax(dim=-1) * allowed"),
    (WEIGHTS, "scores / scores.sum(-1, keepdim=True).clamp(min=1e-6)"),
)
wrong(
    "weights_not_divided",
    "wrong_attention",
    "off by",
    (FILL, "scores.softmax(dim=-1)"),
    (WEIGHTS, "scores * allowed"),
)
wrong(
    "weights_detached", "gradients_cut_off", "queries and keys", (RETURN, "return weights.detach() @ values")
)
wrong("any_nan_replaced", "nan_hidden", "NaN went in", (RETURN, "return (weights @ values).nan_to_num(0.0)"))
wrong(
    "multiplied_by_any",
    "masked_row_nan",
    "gives NaN",
    (FILL, "torch.where(allowed, scores, -1e9)"),
    (WEIGHTS, "scores.softmax(dim=-1) * allowed.any(dim=-1, keepdim=True)"),
)
wrong(
    "all_in_fp32",
    "products_in_another_dtype",
    "ran in fp32",
    (SCORES, SCORES.replace("queries @ keys", "queries.float() @ keys.float()")),
    (RETURN, "return (weights @ values.float()).to(values.dtype)"),
)
wrong(
    "fp32_comes_back",
    "wrong_return_type",
    "float32",
    (WEIGHTS, "torch.where(allowed, scores.float().softmax(dim=-1), 0)"),
    (RETURN, "return weights @ values.float()"),
)
wrong(
    "mask_upside_down",
    "wrong_attention",
    "off by",
    (FILL, FILL.replace("allowed", "~allowed")),
    (WEIGHTS, WEIGHTS.replace("(allowed", "(~allowed")),
)
wrong("mask_forgotten", "wrong_attention", "off by", (FILL, "scores"))
wrong(
    "the_largest_score_of_all_subtracted",
    "wrong_attention",
    "far larger scores than another",
    (FILL, f"{FILL}\n    scores = scores - scores.amax()"),
)
wrong("unscaled_scores", "wrong_attention", "off by", (" / keys.shape[-1] ** 0.5", ""))
wrong("detached", "gradients_cut_off", "no gradient", (RETURN, "return (weights @ values).detach()"))

wrong(
    "mask_times_infinity",
    "wrong_attention",
    "not finite",
    (FILL, "scores + (~allowed).to(scores.dtype) * float('-inf')"),
)

right("the_solution")
right(
    "where_any_is_allowed",
    (FILL, "torch.where(allowed, scores, float('-inf'))"),
    (WEIGHTS, "torch.where(allowed.any(-1, keepdim=True), scores.softmax(dim=-1), 0)"),
)
right("minus_infinity_and_zeros", (FILL, "scores.masked_fill(~allowed, float('-inf'))"))
right(
    "softmax_in_fp32",
    ("scores.softmax(dim=-1)", "scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype)"),
)
right("masked_fill", (FILL, "scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)"))
right("multiplied_by_the_mask", (WEIGHTS, "scores.softmax(dim=-1) * allowed"))
right(
    "output_zeroed",
    (WEIGHTS, "scores.softmax(dim=-1)"),
    (RETURN, "return (weights @ values).masked_fill(~allowed.any(-1, keepdim=True), 0)"),
)


@TABLE.correct()
def by_pytorch(queries, keys, values, allowed):
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed)


@TABLE.correct()
def by_pytorch_with_care_of_its_own(queries, keys, values, allowed):
    some = allowed.any(-1, keepdim=True)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed | ~some) * some


@TABLE.correct()
def exponentials_by_hand(queries, keys, values, allowed):
    scores = (queries @ keys.mT).float() / keys.shape[-1] ** 0.5
    scores = torch.where(allowed, scores, torch.finfo(torch.float32).min)
    terms = (scores - scores.amax(-1, keepdim=True)).exp() * allowed
    weights = terms / terms.sum(-1, keepdim=True).clamp(min=1e-20)
    return weights.to(values.dtype) @ values


@TABLE.correct()
def infinity_where_it_does_no_harm(queries, keys, values, allowed):
    some = allowed.any(-1, keepdim=True)
    scores = torch.einsum("...qd,...kd->...qk", queries, keys) / keys.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed & some, float("-inf")).softmax(-1)
    return torch.einsum("...qk,...kd->...qd", weights, values) * some
