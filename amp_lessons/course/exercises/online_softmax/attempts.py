"""Wrong and right ways to take a softmax block by block."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("online_softmax")
wrong = TABLE.mutant
right = TABLE.variant

FLOAT = "scores, values = scores.float(), values.float()"
BEGIN = "torch.tensor(torch.finfo(torch.float32).min), 0.0, 0.0"
MAXIMUM = "torch.maximum(largest, scores.amax(-1, keepdim=True))"
FACTOR = "(before - largest).exp()"
WEIGHTS = "(scores - largest).exp()"
TOTAL = "total * rescale"
SUM = "weights.sum(-1, keepdim=True)"
WEIGHTED = "weighted * rescale"
PRODUCT = "weights @ values\n"
DIVISOR = "total.clamp(min=1.0)"
LOOP = "    for scores, values in blocks:\n"
ISLAND = "torch.autocast(scores.device.type, enabled=False)"

wrong("never_rescaled", "wrong_softmax", "off by", (TOTAL, "total"), (WEIGHTED, "weighted"))
wrong("sum_alone_rescaled", "wrong_softmax", "off by", (WEIGHTED, "weighted"))
wrong("values_alone_rescaled", "wrong_softmax", "off by", (TOTAL, "total"))
wrong("factor_inverted", "exponents_overflow", "not finite", (FACTOR, "(largest - before).exp()"))
wrong("no_maximum", "exponents_overflow", "all of them became 0", (MAXIMUM, "torch.zeros(())"))
wrong("the_blocks_own_maximum", "exponents_overflow", "fall", (MAXIMUM, "scores.amax(-1, keepdim=True)"))
wrong(
    "one_maximum_for_all_rows", "wrong_softmax", "off by", (MAXIMUM, "torch.maximum(largest, scores.max())")
)
wrong(
    "minus_infinity_to_begin", "masked_row_nan", "sees no key", (BEGIN, "torch.tensor(-torch.inf), 0.0, 0.0")
)
wrong("empty_rows_divide_by_zero", "masked_row_nan", "0 / 0", (DIVISOR, "total"))
wrong(
    "minus_infinity_and_zeros_for_empty_rows",
    "masked_block_nan",
    "some keys are hidden",
    (BEGIN, "torch.tensor(-torch.inf), 0.0, 0.0"),
    ("weighted / total.clamp(min=1.0)", "torch.where(largest == -torch.inf, 0.0, weighted / total)"),
)
wrong(
    "finite_mask",
    "masked_row_not_zero",
    "where zeros belong",
    (FLOAT, FLOAT.replace(".float()", ".float().clamp(min=-1e4)", 1)),
)
wrong(
    "nan_made_zero",
    "nan_hidden",
    "NaN went in",
    (BEGIN, "torch.tensor(-torch.inf), 0.0, 0.0"),
    (FACTOR, "(before - largest).exp().nan_to_num()"),
    (WEIGHTS, "(scores - largest).exp().nan_to_num()"),
)
wrong("not_divided", "wrong_softmax", "off by 1.7", (f" / {DIVISOR}", ""))
wrong("last_block", "wrong_softmax", "off by 0.06", (f"{TOTAL} + ", ""), (f"{WEIGHTED} + ", ""))
wrong(
    "in_16_bits",
    "state_in_half",
    "16 bits",
    (FLOAT, "pass"),
    (DIVISOR, f"{DIVISOR}).float()"),
    ("return weighted", "return (weighted"),
)
wrong("sum_in_bf16", "state_in_half", "a cast", (SUM, f"{SUM}.bfloat16().float()"))
wrong("exponentials_in_bf16", "state_in_half", "a cast", (WEIGHTS, f"{WEIGHTS}.bfloat16().float()"))
wrong("exponentials_in_fp16", "state_in_half", "a cast", (WEIGHTS, f"{WEIGHTS}.half().float()"))
wrong(
    "exponentials_rounded_for_the_sum_alone",
    "state_in_half",
    "a cast",
    (SUM, "weights.bfloat16().float().sum(-1, keepdim=True)"),
)
wrong(
    "exponentials_rounded_for_the_product_alone",
    "state_in_half",
    "a cast",
    (PRODUCT, "weights.bfloat16().float() @ values\n"),
)
wrong(
    "product_in_16_bits",
    "state_in_half",
    "16 bits",
    (FLOAT, "scores = scores.float()"),
    (PRODUCT, "weights.to(values.dtype) @ values\n"),
)
wrong("autocast_left_on", "state_in_half", "under autocast, the result is off", (ISLAND, "torch.no_grad()"))
wrong(
    "result_in_16_bits",
    "wrong_return_type",
    "bfloat16",
    (DIVISOR, f"{DIVISOR}).bfloat16()"),
    ("return weighted", "return (weighted"),
)
wrong("dimension_lost", "wrong_return_type", "of shape", ("return weighted", "return weighted[..., 0]"))
wrong("sum_beside_it", "wrong_return_type", "tuple", (f" / {DIVISOR}", ", total"))
wrong("nothing_returned", "wrong_return_type", "None", ("    return weighted", "    weighted"))
wrong("scores_in_place", "inputs_changed", "in place", (FLOAT, f"scores.sub_(1)\n            {FLOAT}"))
wrong("first_block_by_index", "raised", "not subscriptable", (LOOP, f"    blocks[0]\n{LOOP}"))


@TABLE.mistake("blocks_asked_again", "nothing left")
def two_passes(blocks):
    """Finds the maximum first, as one would of a list."""
    largest = max(scores.float().amax() for scores, _ in blocks)
    total, weighted = 0.0, 0.0
    for scores, values in blocks:
        weights = (scores.float() - largest).exp()
        total, weighted = total + weights.sum(-1, keepdim=True), weighted + weights @ values.float()
    return weighted / total


@TABLE.mistake("blocks_kept", "bytes were held")
def whole_row_at_once(blocks):
    scores, values = zip(*blocks, strict=True)
    scores, values = torch.cat(scores, -1), torch.cat(values)
    with torch.autocast(scores.device.type, enabled=False):
        weights = scores.float().softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        return weights @ values.float()


@TABLE.mistake("blocks_kept", "bytes were held")
def copies_kept_in_fp32(blocks):
    """Lets go of what it was given, and keeps as much of its own."""
    rows, values = [], []
    for scores, value in blocks:
        rows.append(scores.float())
        values.append(value.float())
    return torch.cat(rows, -1).softmax(-1) @ torch.cat(values)


@TABLE.mistake("wrong_softmax", "off by 1.1")
def mean_of_softmaxes(blocks):
    results = [scores.float().softmax(-1) @ values.float() for scores, values in blocks]
    return torch.stack(results).mean(0)


right("the_solution")
right(
    "in_fp64",
    (FLOAT, FLOAT.replace("float", "double")),
    (DIVISOR, f"{DIVISOR}).float()"),
    ("return weighted", "return (weighted"),
)
right(
    "autocast_off_for_all_of_it_by_name",
    (ISLAND, "torch.autocast('cuda' if scores.is_cuda else 'cpu', enabled=False)"),
)


@TABLE.correct()
def first_block_begins(blocks):
    """Takes the first block by next, and a finite maximum where a row has seen nothing."""
    lowest = torch.finfo(torch.float32).min
    scores, values = next(blocks)
    with torch.autocast(scores.device.type, enabled=False):
        largest = scores.float().amax(-1, keepdim=True).clamp(min=lowest)
        weights = (scores.float() - largest).exp()
        total, weighted = weights.sum(-1, keepdim=True), weights @ values.float()
        while (block := next(blocks, None)) is not None:
            scores, values = (each.float() for each in block)
            before = largest
            largest = torch.maximum(before, scores.amax(-1, keepdim=True))
            weights = torch.exp(scores - largest)
            total = total * torch.exp(before - largest) + weights.sum(-1, keepdim=True)
            weighted = weighted * torch.exp(before - largest) + weights @ values
        return torch.where(total > 0, weighted / total, torch.where(total == 0, 0.0, total))


@TABLE.correct()
def by_a_running_logsumexp(blocks):
    """Keeps one number for maximum and sum, and a result that is an average at all times."""
    lse, result = torch.tensor(torch.finfo(torch.float32).min), 0.0
    for scores, values in blocks:
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.float()
            before, lse = lse, torch.logaddexp(lse, scores.logsumexp(-1, keepdim=True))
            result = result * (before - lse).exp() + (scores - lse).exp() @ values.float()
    return result


@TABLE.correct()
def parts_merged_at_the_end(blocks):
    """Keeps maximum, sum and weighted values of each block, as flash-decoding does."""
    parts = []
    for scores, values in blocks:
        with torch.autocast(scores.device.type, enabled=False):
            largest = scores.float().amax(-1, keepdim=True).clamp(min=-3e38)
            weights = (scores.float() - largest).exp()
            parts.append((largest, weights.sum(-1, keepdim=True), weights @ values.float()))
    largest, total, weighted = (torch.stack(each) for each in zip(*parts, strict=True))
    factor = (largest - largest.amax(0)).exp()
    return (weighted * factor).sum(0) / (total * factor).sum(0).clamp(min=1.0)


@TABLE.correct()
def averages_merged_by_their_sums(blocks):
    """Merges as Welford does: the result moves towards a block's own by its share of the sum."""
    lse, mean = None, None
    for scores, values in blocks:
        scores, values = scores.float(), values.float()
        own_lse = scores.logsumexp(-1, keepdim=True).clamp(min=-1e30)
        weights = (scores - own_lse).exp().unsqueeze(-1)
        own = (weights * values).sum(-2)
        if mean is None:
            lse, mean = own_lse, own
        else:
            mean = mean + (own - mean) * torch.sigmoid(own_lse - lse)
            lse = torch.logaddexp(lse, own_lse)
    return mean


@TABLE.correct()
def row_by_row_without_a_matrix_product(blocks):
    largest, total, weighted = -3e38, 0.0, 0.0
    for scores, values in blocks:
        for score, value in zip(scores.float().unbind(-1), values.float(), strict=True):
            score = score.unsqueeze(-1)
            now = score.clamp(min=largest)
            factor = torch.exp(largest - now)
            weight = torch.exp(score - now)
            total, weighted, largest = total * factor + weight, weighted * factor + weight * value, now
    return weighted / torch.clamp(total, min=1.0)


@TABLE.correct()
def sum_as_one_more_column(blocks):
    """Appends a column of ones to the values, so that the sum of exponentials is one of the products."""
    largest, state = torch.tensor(-3e38), 0.0
    for scores, values in blocks:
        with torch.autocast(scores.device.type, enabled=False):
            values = torch.nn.functional.pad(values.float(), (0, 1), value=1.0)
            before, largest = largest, torch.maximum(largest, scores.float().amax(-1, keepdim=True))
            state = state * torch.exp(before - largest) + torch.exp(scores.float() - largest) @ values
    return state[..., :-1] / state[..., -1:].clamp(min=1.0)


@TABLE.correct()
def minus_infinity_with_a_guard(blocks):
    """Keeps -inf as the largest score of a row that has seen nothing, and subtracts 0 there."""
    largest = total = weighted = None
    for scores, values in blocks:
        with torch.autocast(scores.device.type, enabled=False):
            scores, values = scores.float(), values.float()
            now = scores.amax(-1, keepdim=True)
            now = now if largest is None else torch.maximum(largest, now)
            finite = torch.where(now == -torch.inf, 0.0, now)
            weights = (scores - finite).exp()
            if largest is None:
                total, weighted = weights.sum(-1, keepdim=True), weights @ values
            else:
                factor = (largest - finite).exp()
                total = total * factor + weights.sum(-1, keepdim=True)
                weighted = weighted * factor + weights @ values
            largest = now
    return torch.where(total == 0, 0.0, weighted / total)


@TABLE.correct()
def powers_of_two_and_a_state_in_place(blocks):
    """Computes as kernels do: one block ahead, with exp2, and the state overwritten."""
    blocks, largest = iter(blocks), None
    block = next(blocks)
    while block is not None:
        scores, values = block[0].float() * 1.4426950408889634, block[1].float()
        block = next(blocks, None)
        if largest is None:
            largest = torch.full_like(scores[..., :1], -3e38)
            total, weighted = (
                torch.zeros_like(largest),
                largest.new_zeros(*scores.shape[:-1], values.shape[-1]),
            )
        now = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, weights = torch.exp2(largest - now), torch.exp2(scores.sub_(now))
        total.mul_(factor).add_(weights.sum(-1, keepdim=True))
        weighted.mul_(factor).add_((weights.unsqueeze(-1) * values).sum(-2))
        largest = now
    return weighted.div_(total.clamp_(min=1.0))
