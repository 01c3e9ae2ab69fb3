"""Half-mended averages, and unusual right ones."""

from __future__ import annotations

import copy

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_left_behind")
wrong = TABLE.mutant
right = TABLE.variant

COPY = "parameter.detach().float().clone()"
UPDATE = "average[name].mul_(decay).add_(parameter, alpha=1 - decay)"

wrong("cast_at_the_end_only", "average_stuck", "of its way", (COPY, "parameter.detach().clone()"))
wrong(
    "computed_in_fp32_kept_in_16_bits",
    "average_stuck",
    "rounded to bf16 in every step",
    (COPY, "parameter.detach().clone()"),
    (UPDATE, "average[name].copy_(average[name].float() * decay + parameter.float() * (1 - decay))"),
)
wrong(
    "lerp_in_16_bits",
    "average_stuck",
    "bf16",
    (COPY, "parameter.detach().clone()"),
    (UPDATE, "average[name].lerp_(parameter, 1 - decay)"),
)
wrong(
    "decay_in_16_bits",
    "average_stuck",
    "the average, or decay, is rounded",
    (
        UPDATE,
        "d = torch.tensor(decay, dtype=parameter.dtype).item()\n                "
        "average[name].mul_(d).add_(parameter, alpha=1 - d)",
    ),
)
wrong(
    "terms_in_16_bits",
    "wrong_average",
    "hundredth",
    (UPDATE, "average[name].mul_(decay).add_(parameter * (1 - decay))"),
)
wrong(
    "difference_in_16_bits",
    "wrong_average",
    "move by one or two numbers of bf16",
    (UPDATE, "average[name] += (1 - decay) * (parameter - average[name].to(parameter.dtype)).float()"),
)
wrong(
    "result_in_16_bits",
    "wrong_average",
    "of its way",
    ("{name: value.float()", "{name: value.to(model.get_parameter(name).dtype).float()"),
)
wrong(
    "decay_in_fp16",
    "wrong_average",
    "fp32 with decay=0.999",
    (UPDATE, UPDATE.replace("(decay)", "(half)").replace("1 - decay", "1 - half")),
    ("    for _ in", "    half = torch.tensor(decay).half().item()\n    for _ in"),
)
wrong(
    "views_of_one_short_buffer",
    "wrong_average",
    "fp32 with decay=0.9",
    (
        "    average = {name: parameter.detach().float().clone()",
        "    buffer = torch.zeros(max(p.numel() for p in model.parameters())).to(next(model.parameters()).device)\n"
        "    average = {name: buffer[: parameter.numel()].view(parameter.shape).copy_(parameter.detach())",
    ),
)
wrong(
    "begun_in_the_first_call",
    "wrong_average",
    "hundredth",
    ("steps, decay):", "steps, decay, average={}):"),
    (
        "    average = {name: parameter.detach().float().clone()\n               for name, parameter in",
        "    for name, parameter in",
    ),
    (
        "model.named_parameters()}",
        "model.named_parameters():\n        average.setdefault(name, parameter.detach().float().clone())",
    ),
)
wrong(
    "returned_in_one_memory",
    "shares_memory",
    "later call",
    ("steps, decay):", "steps, decay, kept={}):"),
    (
        "    return {name: value.float()",
        "    return {name: kept.setdefault(name, torch.empty_like(value)).copy_(value)",
    ),
)
wrong(
    "a_smaller_decay_so_that_it_moves",
    "wrong_average",
    "of its way",
    (UPDATE, UPDATE.replace("decay", "(decay - 0.01)")),
)
wrong("without_a_copy", "inputs_changed", "in fp32", (COPY, "parameter.detach().float()"))
wrong(
    "model_cast_up",
    "inputs_changed",
    "model is in fp32",
    ("    average =", "    model.float()\n    average ="),
)
_kept = {}


@TABLE.mistake("wrong_average", "of its way")
def goes_on_from_an_earlier_call(model, step, steps, decay):
    start = {name: weight.detach().float().clone() for name, weight in model.named_parameters()}
    average = _kept.setdefault(id(model), start)
    for _ in range(steps):
        step()
        for name, weight in model.named_parameters():
            average[name].mul_(decay).add_(weight.detach(), alpha=1 - decay)
    return {name: each.clone() for name, each in average.items()}


wrong(
    "begins_at_zero",
    "wrong_average",
    "of its way",
    (COPY, "torch.zeros_like(parameter, dtype=torch.float32)"),
)
wrong(
    "averages_before_the_step",
    "wrong_average",
    "of its way",
    ("        step()\n", ""),
    (UPDATE, UPDATE + "\n        step()"),
)
wrong(
    "last_weights_returned",
    "wrong_average",
    "came 165% of its way",
    (UPDATE, "average[name].copy_(parameter)"),
)
wrong(
    "in_fp64",
    "wrong_return_type",
    "float64",
    (COPY, "parameter.detach().double().clone()"),
    ("value.float()", "value"),
)
wrong(
    "back_in_16_bits",
    "wrong_return_type",
    "bfloat16",
    ("value.float()", "value.to(next(model.parameters()).dtype)"),
)
wrong(
    "only_what_is_trained",
    "wrong_return_type",
    "0.bias",
    ("model.named_parameters()}", "model.named_parameters() if parameter.requires_grad}"),
    (
        "for name, parameter in model.named_parameters():",
        "for name, parameter in ((n, p) for n, p in model.named_parameters() if p.requires_grad):",
    ),
)
wrong("one_step_more", "steps_miscounted", "21", ("range(steps)", "range(steps + 1)"))


@TABLE.mistake("average_stuck", "each of its numbers")
def by_averaged_model(model, step, steps, decay):
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    averaged.update_parameters(model)
    for _ in range(steps):
        step()
        averaged.update_parameters(model)
    return {name: p.detach().float() for name, p in averaged.module.named_parameters()}


wrong(
    "no_copy_where_nothing_is_averaged",
    "shares_memory",
    "with the model or in a later call",
    (
        "    average =",
        "    if steps == 0:\n        return {n: p.detach().float() for n, p in model.named_parameters()}\n    average =",
    ),
)

right("the_solution")
right("lerp", (UPDATE, "average[name].lerp_(parameter.float(), 1 - decay)"))
right(
    "difference_rounded",
    (UPDATE, "average[name] += (1 - decay) * (parameter.float() - average[name]).to(parameter.dtype)"),
)
right("by_the_difference", (UPDATE, "average[name] += (1 - decay) * (parameter - average[name])"))


@TABLE.correct()
def averaged_model_in_fp32(model, step, steps, decay):
    wide = copy.deepcopy(model).float()
    averaged = AveragedModel(wide, avg_fn=lambda average, new, count: decay * average + (1 - decay) * new)
    averaged.update_parameters(wide)
    for _ in range(steps):
        step()
        wide.load_state_dict(model.state_dict())
        averaged.update_parameters(wide)
    return {name: p.detach().clone() for name, p in averaged.module.named_parameters()}


@TABLE.correct()
def at_once_in_the_end(model, step, steps, decay):
    seen = [{name: p.detach().clone() for name, p in model.named_parameters()}]
    for _ in range(steps):
        step()
        seen.append({name: p.detach().clone() for name, p in model.named_parameters()})
    weights = [decay**steps] + [(1 - decay) * decay ** (steps - i) for i in range(1, steps + 1)]
    return {
        name: sum(w * each[name].double() for w, each in zip(weights, seen, strict=True)).float()
        for name in seen[0]
    }


@TABLE.correct()
@torch.no_grad()
def all_at_once_by_foreach(model, step, steps, decay):
    names, parameters = zip(*model.named_parameters(), strict=True)
    average = [p.double() for p in parameters]
    average = [a.clone() for a in average]
    for _ in range(steps):
        with torch.enable_grad():
            step()
        torch._foreach_mul_(average, decay)
        torch._foreach_add_(average, [p.double() for p in parameters], alpha=1 - decay)
    return {name: a.float() for name, a in zip(names, average, strict=True)}


@TABLE.correct()
def kahan_in_16_bits(model, step, steps, decay):
    """Two 16-bit numbers for each: what rounding cuts off one is kept in the other."""
    high = {n: p.detach().clone() for n, p in model.named_parameters()}
    low = {n: torch.zeros_like(p, dtype=torch.float32) for n, p in high.items()}
    for _ in range(steps):
        step()
        for n, p in model.named_parameters():
            exact = high[n].float() + low[n]
            exact += (1 - decay) * (p.detach().float() - exact)
            high[n] = exact.to(p.dtype)
            low[n] = exact - high[n].float()
    return {n: high[n].float() + low[n] for n in high}


# --- written without a look at the check
STEP = "    for _ in range(steps):\n        step()\n"
wrong(
    "begins_after_the_first_step",
    "wrong_average",
    "came 101%",
    (
        STEP,
        "    for n in range(steps):\n        step()\n        if n == 0:\n"
        f"            average = {{name: {COPY} for name, parameter in model.named_parameters()}}\n",
    ),
)
wrong(
    "begins_with_zeros",
    "wrong_average",
    "came -215%",
    (COPY, "torch.zeros_like(parameter, dtype=torch.float32)"),
)
wrong(
    "frozen_parameters_left_out",
    "wrong_return_type",
    "without 0.bias",
    ("in model.named_parameters()}", "in model.named_parameters() if parameter.requires_grad}"),
    (
        "                average[name].mul_",
        "                if name in average:\n                    average[name].mul_",
    ),
)
wrong(
    "buffers_averaged_too",
    "wrong_return_type",
    "with seen",
    ("model.named_parameters()}", "model.state_dict().items()}"),
    ("model.named_parameters():", "model.state_dict().items():"),
)
wrong(
    "returned_in_one_dict",
    "shares_memory",
    "later call",
    ("steps, decay):", "steps, decay, kept={}):"),
    ("    average =", "    kept.clear()\n    average ="),
    (
        "    return {name: value.float() for name, value in average.items()}",
        "    return kept.update(average) or kept",
    ),
)
