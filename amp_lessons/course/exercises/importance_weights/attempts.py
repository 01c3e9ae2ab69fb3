"""Wrong and right ways to weigh tokens that another policy has drawn."""

from __future__ import annotations

import math

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("importance_weights")
wrong = TABLE.mutant
right = TABLE.variant

FLOAT = "trainer_logprobs.detach().float(), engine_logprobs.float()"
RATIO = "(trainer - engine).exp()"
CAPPED = f"{RATIO}.clamp(max=cap)"
MASKED = "torch.where(trainer.isfinite() & engine.isfinite(), weights, 0.0)"

wrong("ratio_of_probabilities", "ratio_of_probabilities", "1e-45", (RATIO, "(trainer.exp() / engine.exp())"))
wrong(
    "with_an_epsilon",
    "ratio_of_probabilities",
    "below 1e-45 is 0",
    (RATIO, "(trainer.exp() / (engine.exp() + 1e-8))"),
)
wrong(
    "engine_over_trainer",
    "wrong_weights",
    "has the weight 2, where 0.2326",
    ("trainer - engine", "engine - trainer"),
)
wrong(
    "differences_clamped",
    "wrong_weights",
    "all but impossible",
    (RATIO, "(trainer - engine).clamp(-10, 10).exp()"),
)
wrong(
    "masked_by_the_ratio",
    "wrong_weights",
    "found all but impossible",
    (MASKED, "torch.where(weights.isfinite(), weights, 0.0)"),
    (CAPPED, f"torch.where({RATIO}.isfinite(), {RATIO}, 0.0).clamp(max=cap)"),
)
wrong("not_capped", "wrong_weights", "where 2 was asked for; the cap is 2", (".clamp(max=cap)", ""))
wrong("cap_of_two_always", "wrong_weights", "nearly certain", ("max=cap", "max=2.0"))
wrong(
    "logarithm_capped_by_cap",
    "wrong_weights",
    "where 2 was asked for; the cap is 2",
    (CAPPED, "(trainer - engine).clamp(max=cap).exp()"),
)
wrong("clipped_as_in_ppo", "wrong_weights", "has the weight 0.5, where 0.2326", ("max=cap", "1 / cap, cap"))
wrong(
    "masked_above_the_cap",
    "wrong_weights",
    "has the weight 0, where 2 was",
    (CAPPED, f"{RATIO}\n    weights = weights * (weights <= cap)"),
)
wrong("mean_divided_out", "wrong_weights", "has the weight 1.032", (MASKED, f"({MASKED} / {MASKED}.mean())"))
wrong("sums_to_one", "wrong_weights", "has the weight 0.005645", (MASKED, f"({MASKED} / {MASKED}.sum())"))
wrong("graph_kept", "weights_have_graph", "graph", (".detach()", ""))
wrong(
    "only_engine_detached",
    "weights_have_graph",
    "probabilities",
    (FLOAT, "trainer_logprobs.float(), engine_logprobs.detach().float()"),
)
wrong(
    "in_the_inputs_dtype",
    "wrong_weights",
    "was asked for",
    (FLOAT, "trainer_logprobs.detach(), engine_logprobs"),
    (RATIO, "(trainer - engine).exp().float()"),
)
wrong(
    "difference_in_the_inputs_dtype",
    "wrong_weights",
    "was asked for",
    (FLOAT, "trainer_logprobs.detach(), engine_logprobs"),
    (RATIO, "(trainer - engine).float().exp()"),
)
wrong("rounded_to_bf16", "wrong_weights", "has the weight 1.078", (RATIO, f"{RATIO}.bfloat16().float()"))
wrong("not_masked", "not_masked", "is no number", (MASKED, "weights"))
wrong(
    "masked_by_a_product",
    "not_masked",
    "weight nan",
    (MASKED, "weights * (trainer.isfinite() & engine.isfinite())"),
)
wrong("nan_made_one", "not_masked", "weight 2", (MASKED, "weights.nan_to_num(1.0)"))
wrong(
    "trainer_alone_is_looked_at",
    "not_masked",
    "is no number",
    ("trainer.isfinite() & engine.isfinite()", "trainer.isfinite()"),
)
wrong(
    "one_for_each_text",
    "wrong_return_type",
    "of shape",
    (RATIO, "(trainer - engine).sum(-1, keepdim=True).exp()"),
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
    (FLOAT, "trainer_logprobs.detach().float(), engine_logprobs.nan_to_num_().sub_(0.5).float()"),
)
wrong("nothing_returned", "wrong_return_type", "None", ("    return ", "    _ = "))


right("the_solution")
right(
    "in_fp64",
    (FLOAT, "trainer_logprobs.detach().double(), engine_logprobs.double()"),
    (MASKED, f"{MASKED}.float()"),
)
right(
    "capped_before_the_exponential", (CAPPED, "(trainer - engine).clamp(max=torch.tensor(cap).log()).exp()")
)


@TABLE.mistake("inputs_changed", "the log-probabilities")
def difference_in_place(trainer_logprobs, engine_logprobs, cap):
    usable = torch.isfinite(trainer_logprobs) & torch.isfinite(engine_logprobs)
    ratio = trainer_logprobs.detach().float().sub_(engine_logprobs.float()).exp_().clamp_(max=cap)
    return torch.where(usable, ratio, 0.0)


@TABLE.correct()
def zeros_by_minus_infinity(trainer_logprobs, engine_logprobs, cap):
    with torch.no_grad():
        difference = trainer_logprobs.to(torch.float32) - engine_logprobs.to(torch.float32)
        difference = difference.masked_fill(~difference.isfinite(), -torch.inf)
        return torch.minimum(difference, torch.tensor(math.log(cap))).exp()


@TABLE.correct()
def by_expm1(trainer_logprobs, engine_logprobs, cap):
    """Keeps the digits of ratios near 1, which nobody needs here."""
    usable = torch.isfinite(trainer_logprobs) & torch.isfinite(engine_logprobs)
    trainer, engine = (
        torch.where(usable, each.float(), 0.0).data for each in (trainer_logprobs, engine_logprobs)
    )
    return (torch.expm1(trainer - engine) + 1).clamp(max=cap) * usable


@TABLE.correct()
def token_by_token(trainer_logprobs, engine_logprobs, cap):
    def weight(trainer, engine):
        return (
            min(math.exp(min(trainer - engine, 50.0)), cap)
            if math.isfinite(trainer) and math.isfinite(engine)
            else 0.0
        )

    pairs = zip(trainer_logprobs.flatten().tolist(), engine_logprobs.flatten().tolist(), strict=True)
    return torch.tensor([weight(*pair) for pair in pairs]).reshape(trainer_logprobs.shape)
