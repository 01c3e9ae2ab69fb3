"""Wrong and right ways to weigh tokens that another policy has drawn."""

from __future__ import annotations

import math

import torch

from amp_lessons.exercises.attempt_table import Table

TABLE = Table("importance_weights")
wrong = TABLE.mutant
right = TABLE.variant

FLOAT = "new_logprobs.detach().float(), old_logprobs.float()"
RATIO = "(new - old).exp()"
CAPPED = f"{RATIO}.clamp(max=cap)"
MASKED = "torch.where(new.isfinite() & old.isfinite(), weights, 0.0)"

wrong("ratio_of_probabilities", "ratio_of_probabilities", "1e-45", (RATIO, "(new.exp() / old.exp())"))
wrong(
    "with_an_epsilon", "ratio_of_probabilities", "the ratio lost", (RATIO, "(new.exp() / (old.exp() + 1e-8))")
)
wrong("old_over_new", "ratio_inverted", "too often", ("new - old", "old - new"))
wrong("not_capped", "ratio_not_capped", "above the cap", (".clamp(max=cap)", ""))
wrong("cap_of_two_always", "wrong_weights", "nearly certain", ("max=cap", "max=2.0"))
wrong(
    "logarithm_capped_by_cap",
    "ratio_not_capped",
    "above the cap",
    (CAPPED, "(new - old).clamp(max=cap).exp()"),
)
wrong("clipped_as_in_ppo", "ratio_capped_below", "hardly draw", ("max=cap", "1 / cap, cap"))
wrong(
    "masked_above_the_cap",
    "capped_to_zero",
    "another method",
    (CAPPED, f"{RATIO}\n    weights = weights * (weights <= cap)"),
)
wrong("mean_divided_out", "weights_normalised", "mean", (MASKED, f"({MASKED} / {MASKED}.mean())"))
wrong("sums_to_one", "weights_normalised", "sum", (MASKED, f"({MASKED} / {MASKED}.sum())"))
wrong("graph_kept", "weights_have_graph", "graph", (".detach()", ""))
wrong(
    "only_old_detached",
    "weights_have_graph",
    "probabilities",
    (FLOAT, "new_logprobs.float(), old_logprobs.detach().float()"),
)
wrong(
    "in_the_inputs_dtype",
    "difference_in_half",
    "16 bits",
    (FLOAT, "new_logprobs.detach(), old_logprobs"),
    (RATIO, "(new - old).exp().float()"),
)
wrong(
    "difference_in_the_inputs_dtype",
    "difference_in_half",
    "16 bits",
    (FLOAT, "new_logprobs.detach(), old_logprobs"),
    (RATIO, "(new - old).float().exp()"),
)
wrong("rounded_to_bf16", "wrong_weights", "off by", (RATIO, f"{RATIO}.bfloat16().float()"))
wrong("not_masked", "not_masked", "never had", (MASKED, "weights"))
wrong(
    "masked_by_a_product",
    "not_masked",
    "weight nan",
    (MASKED, "weights * (new.isfinite() & old.isfinite())"),
)
wrong("nan_made_one", "not_masked", "weight 2", (MASKED, "weights.nan_to_num(1.0)"))
wrong(
    "new_alone_is_looked_at",
    "not_masked",
    "is no number",
    ("new.isfinite() & old.isfinite()", "new.isfinite()"),
)
wrong(
    "one_for_each_text",
    "wrong_return_type",
    "of shape",
    (RATIO, "(new - old).sum(-1, keepdim=True).exp()"),
    (MASKED, "weights"),
)
wrong(
    "result_in_bf16",
    "wrong_return_type",
    "bfloat16",
    ("return ", "return 1.0 * "),
    (MASKED, f"{MASKED}.bfloat16()"),
)
wrong("numbers_in_a_list", "wrong_return_type", "list", (MASKED, f"{MASKED}.tolist()"))
wrong(
    "in_place",
    "inputs_changed",
    "in place",
    (FLOAT, "new_logprobs.detach().float(), old_logprobs.nan_to_num_().sub_(0.5).float()"),
)
wrong("nothing_returned", "wrong_return_type", "None", ("    return ", "    _ = "))


right("the_solution")
right(
    "in_fp64", (FLOAT, "new_logprobs.detach().double(), old_logprobs.double()"), (MASKED, f"{MASKED}.float()")
)
right("capped_before_the_exponential", (CAPPED, "(new - old).clamp(max=torch.tensor(cap).log()).exp()"))


@TABLE.correct()
def zeros_by_minus_infinity(new_logprobs, old_logprobs, cap):
    with torch.no_grad():
        difference = new_logprobs.to(torch.float32) - old_logprobs.to(torch.float32)
        difference = difference.masked_fill(~difference.isfinite(), -torch.inf)
        return torch.minimum(difference, torch.tensor(math.log(cap))).exp()


@TABLE.correct()
def by_expm1(new_logprobs, old_logprobs, cap):
    """Keeps the digits of ratios near 1, which nobody needs here."""
    usable = torch.isfinite(new_logprobs) & torch.isfinite(old_logprobs)
    new, old = (torch.where(usable, each.float(), 0.0).data for each in (new_logprobs, old_logprobs))
    return (torch.expm1(new - old) + 1).clamp(max=cap) * usable


@TABLE.correct()
def token_by_token(new_logprobs, old_logprobs, cap):
    def weight(new, old):
        return min(math.exp(min(new - old, 50.0)), cap) if math.isfinite(new) and math.isfinite(old) else 0.0

    pairs = zip(new_logprobs.flatten().tolist(), old_logprobs.flatten().tolist(), strict=True)
    return torch.tensor([weight(*pair) for pair in pairs]).reshape(new_logprobs.shape)
