"""Wrong and right softmaxes."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("stable_softmax")
wrong = TABLE.mutant
right = TABLE.variant

LARGEST = "wide.amax(dim, keepdim=True)"
BOTH = "return (exponentials / total).to(scores.dtype), logsumexp"

wrong("raw", "exp_overflows", "around 1000", (LARGEST, "torch.zeros(())"), ("def ", "import torch\n\n\ndef "))
wrong("smallest_subtracted", "mask_spoils_softmax", "-inf", (LARGEST, "wide.amin(dim, keepdim=True)"))
wrong(
    "clamped", "exp_overflows", "1000", ("(wide - largest)", "(wide.clamp(-80, 80) - largest.clamp(-80, 80))")
)
wrong("largest_of_all", "not_by_row", "apart", (LARGEST, "wide.max()"))
wrong("mean_subtracted", "mask_spoils_softmax", "-inf", (LARGEST, "wide.mean(dim, keepdim=True)"))
wrong(
    "in_16_bits",
    "rounded_on_the_way",
    "70,000",
    ("scores.float()", "scores"),
    ("squeeze(dim)", "squeeze(dim).float()"),
)
wrong(
    "exponentials_rounded",
    "rounded_on_the_way",
    "fp16",
    ("(wide - largest).exp()", "(wide - largest).exp().to(scores.dtype).float()"),
)
wrong(
    "sum_rounded",
    "rounded_on_the_way",
    "70,000",
    ("exponentials.sum(dim, keepdim=True)", "exponentials.sum(dim, keepdim=True).to(scores.dtype).float()"),
)
wrong("largest_forgotten", "wrong_softmax", "logsumexp", ("(largest + total.log())", "total.log()"))
wrong(
    "largest_inside_the_log",
    "wrong_softmax",
    "logsumexp",
    ("(largest + total.log())", "(largest + total).log()"),
)
wrong(
    "another_dimension",
    "wrong_softmax",
    "softmax",
    ("exponentials.sum(dim, keepdim=True)", "exponentials.sum(0, keepdim=True)"),
    (
        "logsumexp = (largest + total.log()).squeeze(dim)",
        "logsumexp = (largest + exponentials.sum(dim, keepdim=True).log()).squeeze(dim)",
    ),
)
wrong("torchs_softmax", "uses_torchs_softmax", "softmax", ("(exponentials / total)", "wide.softmax(dim)"))
wrong(
    "torchs_logsumexp",
    "uses_torchs_softmax",
    "logsumexp",
    ("(largest + total.log()).squeeze(dim)", "wide.logsumexp(dim)"),
)
wrong("in_place", "inputs_changed", "scores", ("wide - largest", "scores.copy_(scores - largest).float()"))
wrong("fp32_returned", "wrong_return_type", "float16", (".to(scores.dtype)", ""))
wrong(
    "logsumexp_in_16_bits", "wrong_return_type", "float16", ("squeeze(dim)", "squeeze(dim).to(scores.dtype)")
)
wrong("dimension_kept", "wrong_return_type", "logsumexp", (".squeeze(dim)", ""))
wrong(
    "softmax_alone",
    "wrong_return_type",
    "two tensors",
    (BOTH, "return (exponentials / total).to(scores.dtype)"),
)
wrong("nothing_returned", "wrong_return_type", "None", (BOTH, "logsumexp"))

right("the_solution")
right("in_fp64", ("scores.float()", "scores.double()"), (".squeeze(dim)", ".squeeze(dim).float()"))
right("a_list", (BOTH, "return [(exponentials / total).to(scores.dtype), logsumexp]"))
right("multiplied_by_the_inverse", ("exponentials / total", "exponentials * total.reciprocal()"))
right(  # as the backward pass of an attention kernel has it
    "exp_of_what_is_above_the_logsumexp",
    (BOTH, "return (scores.float() - logsumexp.unsqueeze(dim)).exp().to(scores.dtype), logsumexp"),
)


@TABLE.mistake("mask_spoils_softmax", "-30,000")
def a_number_for_the_mask(scores, dim):
    rows = scores.float().masked_fill(scores == -torch.inf, -1e4)
    rows = rows - (largest := rows.amax(dim, keepdim=True))
    total = rows.exp().sum(dim, keepdim=True)
    return (rows.exp() / total).to(scores.dtype), (largest + total.log()).squeeze(dim)


@TABLE.correct()
def online_along_the_row(scores, dim):
    """In pieces of 512, as an attention kernel has them."""
    rows = scores.movedim(dim, -1).float()
    largest = torch.full(rows.shape[:-1], -torch.inf)
    total = torch.zeros(rows.shape[:-1])
    for piece in rows.split(512, -1):
        larger = torch.maximum(largest, piece.amax(-1))
        total = total * (largest - larger).exp() + (piece - larger[..., None]).exp().sum(-1)
        largest = larger
    softmax = (rows - largest[..., None]).exp() / total[..., None]
    return softmax.movedim(-1, dim).to(scores.dtype), largest + total.log()
