"""Half-mended normalisations, and unusual right ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_first_batch")
wrong = TABLE.mutant
right = TABLE.variant

SQUARE = "x.float().square()"
EPS = "mean_square + eps"
RETURN = "return scaled.to(x.dtype)"

wrong("cast_after_squaring", "eps_vanishes", "a square", (SQUARE, "x.square().float()"))
wrong("mean_cast_back", "eps_vanishes", "blank row", (EPS, "mean_square.to(x.dtype) + eps"))
wrong(
    "squared_after_scaling_down",
    "wrong_normalisation",
    "bright rows",
    (SQUARE, "x.square().float()"),
    (EPS, "torch.where(mean_square < 1e-3, x.float().square().mean(-1, keepdim=True), mean_square) + eps"),
)
wrong(
    "eps_in_the_dtype_of_x",
    "eps_vanishes",
    "blank row",
    (EPS, "mean_square + torch.tensor(eps, dtype=x.dtype)"),
)
wrong("a_larger_eps", "eps_not_added", "as if eps were 0.0001", (EPS, "mean_square + max(eps, 1e-4)"))
wrong(
    "eps_of_the_dtype",
    "eps_not_added",
    "as if eps were 1.2e-07",
    (EPS, "mean_square + torch.finfo(x.dtype).eps"),
)
wrong(
    "eps_outside_the_root",
    "wrong_normalisation",
    "off by 1",
    ("torch.sqrt(mean_square + eps)", "(torch.sqrt(mean_square) + eps)"),
)
wrong(
    "clamped_in_fp16",
    "wrong_normalisation",
    "off by 0.57",
    (SQUARE, "x.square()"),
    (EPS, "mean_square.clamp(min=eps)"),
)
wrong("clamped_in_fp32", "wrong_normalisation", "off by 0.57", (EPS, "mean_square.clamp(min=eps)"))
wrong(
    "nan_to_num",
    "eps_vanishes",
    "in fp32 they are not",
    (SQUARE, "x.square()"),
    (RETURN, "return scaled.nan_to_num(0.0).to(x.dtype)"),
)
wrong(
    "nan_to_num_in_fp32", "nan_hidden", "NaN went in", (RETURN, "return scaled.nan_to_num(0.0).to(x.dtype)")
)
wrong(
    "blank_rows_by_where",
    "eps_vanishes",
    "in fp32 they are not",
    (SQUARE, "x.square()"),
    (RETURN, "return torch.where(x == 0, x, scaled)"),
)
wrong(
    "where_in_fp32_without_eps",
    "eps_not_added",
    "as if eps were",
    (EPS, "mean_square"),
    (RETURN, "return torch.where(x == 0, x, scaled).to(x.dtype)"),
)
wrong("fp32_comes_back", "wrong_return_type", "float32", (RETURN, "return scaled"))
wrong("bf16_in_between", "wrong_normalisation", "off by", (SQUARE, "x.bfloat16().square()"))
wrong("over_everything", "wrong_normalisation", "off by", ("mean(dim=-1, keepdim=True)", "mean()"))
wrong("without_gradients", "gradients_cut_off", "no gradient", (RETURN, "return scaled.to(x.dtype).detach()"))
wrong(
    "root_without_gradients",
    "normalisation_gradients",
    "wrong",
    ("mean_square = x", "mean_square = x.detach()"),
)


wrong(
    "root_cast_back",
    "eps_vanishes",
    "in fp16 with eps=1e-16",
    ("torch.sqrt(mean_square + eps)", "torch.sqrt(mean_square + eps).to(x.dtype)"),
)
wrong(
    "reciprocal_cast_back",
    "eps_vanishes",
    "in fp16 with eps=1e-16",
    ("x / torch.sqrt(mean_square + eps)", "x * torch.rsqrt(mean_square + eps).to(x.dtype)"),
)
wrong(
    "divided_by_the_largest_first",
    "eps_not_added",
    "a blank row gives NaN",
    (SQUARE, "(x.float() / x.float().abs().amax(-1, keepdim=True)).square()"),
)
wrong("without_eps", "eps_not_added", "a blank row gives NaN", (EPS, "mean_square"))
wrong(
    "standard_deviation",
    "wrong_normalisation",
    "off by",
    (SQUARE, "(x.float() - x.float().mean(-1, keepdim=True)).square()"),
)
wrong(
    "eps_of_the_first_call",
    "wrong_normalisation",
    "off by",
    ("eps=1e-8):", "eps=1e-8, seen=[]):"),
    (EPS, "mean_square + (seen.append(eps) or seen[0])"),
)


@TABLE.mistake("eps_not_added", "as if eps were")
def by_normalize(x, eps=1e-8):
    return F.normalize(x, dim=-1, eps=eps) * x.shape[-1] ** 0.5


@TABLE.mistake("normalisation_gradients", "not finite")
def by_hypot(x, eps=1e-8):
    root = x.float().square().mean(dim=-1, keepdim=True).sqrt()
    return (x / torch.hypot(root, torch.full_like(root, eps**0.5))).to(x.dtype)


@TABLE.mistake("eps_vanishes", "with eps=1e-30")
def in_fp16_beside_the_largest(x, eps=1e-8):
    """Divide by the largest of a row, or by the smallest number of fp16: not small enough for every eps."""
    largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-7)
    y = x / largest
    return y / (y.square().mean(-1, keepdim=True) + (eps / largest.float().square()).to(x.dtype)).sqrt()


right("the_solution")
right("in_fp64", (SQUARE, "x.double().square()"))
right("rsqrt", ("x / torch.sqrt(mean_square + eps)", "x.float() * torch.rsqrt(mean_square + eps)"))


@TABLE.correct()
def by_pytorch_in_fp32(x, eps=1e-8):
    return F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


@TABLE.correct()
def by_a_dot_product(x, eps=1e-8):
    squares = torch.einsum("...i,...i->...", x.float(), x.float())[..., None]
    return (x.float() / (squares / x.shape[-1] + eps) ** 0.5).to(x.dtype)


@TABLE.correct()
def scaled_up_first(x, eps=1e-8):
    """Scale to where squares fit, and scale eps with it: exact, for the factor is a power of two."""
    wide = x.float()
    factor = torch.exp2(-torch.ceil(torch.log2(wide.detach().abs().amax(-1, keepdim=True) + 1e-4)))
    y = wide * factor
    return (y / (y.square().mean(-1, keepdim=True) + eps * factor * factor).sqrt()).to(x.dtype)
