"""Wrong and right ways to round at random."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("stochastic_rounding")
wrong = TABLE.mutant
right = TABLE.variant

NOISE = "torch.randint(0, 2**16, x.shape, generator=generator, dtype=torch.int32)"
FINITE = "torch.where(x.isfinite(), rounded, x)"

wrong(
    "to_nearest", "biased", "went away from zero in", (f"{FINITE}.to(torch.bfloat16)", "x.to(torch.bfloat16)")
)
wrong("cut_off", "biased", "went away from zero in", (" + noise", ""))
wrong("noise_too_large", "exact_changed", "nothing to round", ("0, 2**16, x", "0, 2**17, x"))
wrong("noise_too_small", "biased", "of 20,000", ("0, 2**16, x", "0, 2**15, x"))
wrong("nearest_after_the_noise", "exact_changed", "nothing to round", (" & -(2**16)", ""))
wrong("mask_of_one_bit_too_many", "exact_changed", "nothing to round", ("& -(2**16)", "& -(2**17)"))
wrong("global_draws", "generator_unused", "another result", ("generator=generator, ", ""))
wrong(
    "own_generator",
    "generator_unused",
    "same result",
    ("generator=generator", "generator=torch.Generator().manual_seed(0)"),
)
wrong(
    "generator_of_the_same_seed",
    "generator_unused",
    "same result",
    ("generator=generator", "generator=torch.Generator().manual_seed(generator.initial_seed())"),
)
wrong("one_draw", "biased", "went away from zero in", ("x.shape", "()"))
wrong("one_draw_a_row", "one_draw_for_all", "1 place apart", ("x.shape", "(len(x), *[1] * (x.dim() - 1))"))
wrong("rows_share_their_draws", "one_draw_for_all", "64 places apart", ("x.shape", "x.shape[-1:]"))
wrong("noise_up_to_the_next_number", "exact_changed", "nothing to round", ("0, 2**16, x", "0, 2**16 + 1, x"))
wrong("nan_not_left_alone", "special_lost", "NaN", (FINITE, "rounded"))
wrong(
    "in_place",
    "inputs_changed",
    "numbers",
    ("x.view(torch.int32) + noise", "x.view(torch.int32).add_(noise)"),
)
wrong("fp32_returned", "wrong_return_type", "float32", (".to(torch.bfloat16)", ""))
wrong("nothing_returned", "wrong_return_type", "None", ("return torch.where", "torch.where"))


@TABLE.mistake("biased", "49.6% of 20,000")
def fair_coin(x, generator):
    lower = (x.view(torch.int32) & -(2**16)).view(torch.float32)
    upper = (lower.view(torch.int32) + 2**16).view(torch.float32)
    coin = (torch.rand(x.shape, generator=generator) < 0.5) & x.isfinite() & (lower != x)
    return torch.where(coin, upper, torch.where(x.isfinite(), lower, x)).to(torch.bfloat16)


@TABLE.mistake("no_neighbour", "neighbours in bf16")
def noise_of_one_size(x, generator):
    noise = (torch.rand(x.shape, generator=generator) - 0.5) * 2.0**-7
    exact = x.to(torch.bfloat16).float() == x
    return torch.where(exact | ~x.isfinite(), x, x + noise).to(torch.bfloat16)


@TABLE.mistake("no_neighbour", "neighbours in bf16")
def noise_relative_to_the_number(x, generator):
    noise = (torch.rand(x.shape, generator=generator) - 0.5) * 2.0**-7 * x
    exact = x.to(torch.bfloat16).float() == x
    return torch.where(exact | ~x.isfinite(), x, x + noise).to(torch.bfloat16)


right("the_solution")
right("bits_of_half_the_number", (".to(torch.bfloat16)", ".bfloat16()"))
right(
    "noise_cut_from_more_bits",
    (NOISE, "torch.randint(0, 2**30, x.shape, generator=generator, dtype=torch.int32) % 2**16"),
)
right("in_64_bits", ("(x.view(torch.int32) + noise)", "(x.view(torch.int32).long() + noise).to(torch.int32)"))


@TABLE.correct()
def by_the_upper_half(x, generator):
    """Shifted into 16 bits, where nothing is left to mask."""
    noise = torch.randint(0, 2**16, x.shape, generator=generator, dtype=torch.int32)
    upper = (x.view(torch.int32) + noise) >> 16
    rounded = upper.to(torch.int16).view(torch.bfloat16)
    return torch.where(x.isfinite(), rounded, x.bfloat16())
