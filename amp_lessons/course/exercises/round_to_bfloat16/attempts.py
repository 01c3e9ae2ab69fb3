"""Wrong and right ways of rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("round_to_bfloat16")
wrong = TABLE.mutant
right = TABLE.variant

RETURN = "    return torch.where(x.isnan(), x, rounded.view(torch.float32))\n"

wrong("truncates", "nearest", "nearer to the next", ("(bits + 0x7FFF + last_kept_bit)", "bits"))
wrong("rounds_up", "nearest", "nearer to the bf16 below", ("0x7FFF + last_kept_bit", "0xFFFF"))
wrong("ties_up", "ties", "halfway", ("0x7FFF + last_kept_bit", "0x8000"))
wrong("ties_down", "ties", "halfway", (" + last_kept_bit)", ")"))
wrong(
    "ties_to_odd",
    "ties",
    "halfway",
    ("last_kept_bit = (bits >> 16) & 1", "last_kept_bit = 1 - ((bits >> 16) & 1)"),
)
wrong("nan_unprotected", "nan", "NaN", (RETURN, "    return rounded.view(torch.float32)\n"))
wrong("lower_half_kept", "representable", "(0x00007FFF) instead of 0", ("& ~0xFFFF", "& ~0x0"))
wrong(
    "saturates",
    "overflow",
    "largest",
    (
        RETURN,
        "    return torch.where(x.isnan() | x.isinf(), x, rounded.view(torch.float32).clamp(-3.3895e38, 3.3895e38))\n",
    ),
)
wrong(
    "flushes_subnormals",
    "subnormal",
    "subnormal",
    (
        RETURN,
        "    rounded = rounded.view(torch.float32)\n    return torch.where(x.isnan(), x, rounded * (rounded.abs() > 1.2e-38))\n",
    ),
)
wrong(
    "loses_the_sign",
    "representable",
    "-2 (0xC0000000) became 2",
    (RETURN, "    return torch.where(x.isnan(), x, rounded.view(torch.float32).abs())\n"),
)
wrong(
    "changes_its_input",
    "inputs_changed",
    "in place",
    ("    bits = x.view(torch.int32)\n", "    bits = x.view(torch.int32)\n    bits &= ~0xFF\n"),
)
wrong("returns_bits", "wrong_return_type", "int32", (RETURN, "    return rounded\n"))
wrong("returns_bfloat16", "casts_to_bfloat16", "did the rounding", (RETURN, "    return x.bfloat16()\n"))
wrong(
    "flattens",
    "wrong_return_type",
    "shape (3, 4) was expected",
    (RETURN, "    return torch.where(x.isnan(), x, rounded.view(torch.float32)).flatten()\n"),
)
wrong(
    "not_for_transposed",
    "raised",
    "a matrix that is not contiguous",
    ("x.view(torch.int32)", "x.view(-1).view(torch.int32).view(x.shape)"),
)
wrong("returns_none", "wrong_return_type", "None", (RETURN, ""))
wrong("int_conversion", "representable", "instead of", ("x.view(torch.int32)", "x.to(torch.int32)"))


@TABLE.mistake("casts_to_bfloat16", "did the rounding")
def uses_the_cast(x):
    return x.to(torch.bfloat16).float()


@TABLE.mistake("infinity", "infinities")
def infinity_becomes_nan(x):
    scale = torch.where(x.isinf(), x - x, torch.zeros_like(x))
    return TABLE.changed()(x) + scale


@TABLE.mistake("casts_to_bfloat16", "did the rounding")
def copies_into_bfloat16(x):
    return torch.empty(x.shape, dtype=torch.bfloat16).copy_(x).float()


@TABLE.mistake("casts_to_bfloat16", "did the rounding")
def makes_it_of_a_list(x):
    return torch.tensor(x.tolist(), dtype=torch.bfloat16).float()


right("the_solution")
right("masked_by_shifts", ("& ~0xFFFF", ">> 16 << 16"))


@TABLE.correct()
def by_numpy(x):
    values = x.numpy() if x.is_contiguous() else x.contiguous().numpy()
    bits = np.atleast_1d(values).view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    rounded = np.where(np.isnan(np.atleast_1d(values)), 0x7FC00000, rounded).astype(np.uint32)
    return torch.from_numpy(rounded.view(np.float32)).reshape(x.shape)


@TABLE.correct()
def by_comparing_the_remainder(x):
    bits = x.contiguous().view(torch.int32)
    low, high = bits & 0xFFFF, bits & -65536
    up = (low > 0x8000) | ((low == 0x8000) & ((bits >> 16) & 1 == 1))
    out = (high + up.to(torch.int32) * 0x10000).view(torch.float32)
    out[x.isnan()] = torch.nan
    return out


@TABLE.correct()
def by_frexp(x):
    """Not by integers, and right all the same."""
    fraction, exponent = torch.frexp(x.double())
    step = torch.ldexp(torch.ones_like(fraction), (exponent - 8).clamp(min=-133))
    rounded = ((x.double() / step).round() * step).float()
    return torch.where(rounded.abs() > 3.39e38, x.sign() * torch.inf, torch.where(x == 0, x, rounded))


@TABLE.correct()
def by_another_librarys_cast(x):
    return torch.from_numpy(np.array(x.numpy().astype(ml_dtypes.bfloat16).astype(np.float32)))


@TABLE.correct()
def by_halves_of_bfloat16(x):
    """Only reinterprets, and moves, what integers have rounded."""
    bits = x.view(torch.int32)
    upper = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(torch.int16).view(torch.bfloat16).clone()
    return torch.where(x.isnan(), torch.full_like(upper, torch.nan), upper).float()


@TABLE.mistake("nearest", "(0x3E00C000) became 0.125732422 (0x3E00C000)")
def rounds_to_float16(x):
    return torch.from_numpy(x.numpy().astype(np.float16).astype(np.float32))


@TABLE.mistake("wrong_return_type", "dtype torch.bfloat16")
def returns_the_upper_half(x):
    bits = x.view(torch.int32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(torch.int16).view(torch.bfloat16)


wrong(
    "by_hand_and_returns_bfloat16",
    "wrong_return_type",
    "dtype torch.bfloat16",
    (RETURN, RETURN[:-1] + ".bfloat16()\n"),
)
wrong(
    "one_bit_too_few",
    "representable",
    "became",
    ("last_kept_bit = (bits >> 16) & 1", "last_kept_bit = (bits >> 17) & 1"),
    ("(bits + 0x7FFF + last_kept_bit) & ~0xFFFF", "(bits + 0xFFFF + last_kept_bit) & ~0x1FFFF"),
)
wrong(
    "adds_a_quarter",
    "nearest",
    "nearer to the next",
    ("(bits + 0x7FFF + last_kept_bit)", "(bits + 0x3FFF + last_kept_bit)"),
)


@TABLE.mistake("casts_to_bfloat16", "did the rounding")
def fills_bfloat16(x):
    result = torch.zeros(x.shape, dtype=torch.bfloat16)
    result[...] = x
    return result.float()


@TABLE.correct()
def casts_what_it_has_rounded(x):
    return TABLE.changed()(x).bfloat16().float()


@TABLE.correct()
def fills_bfloat16_with_bits(x):
    upper = TABLE.changed()(x).view(torch.int32) >> 16
    result = torch.empty(x.shape, dtype=torch.bfloat16)
    result.view(torch.int16).copy_(upper.to(torch.int16))
    result[x.isnan()] = torch.nan
    return result.float()


wrong(
    "adds_all_kept_bits",
    "nearest",
    "nearer to the bf16 below",
    ("last_kept_bit = (bits >> 16) & 1", "last_kept_bit = bits >> 16"),
)
wrong(
    "subtracts_for_negative_values",
    "representable",
    "became -1.99",
    ("(bits + 0x7FFF + last_kept_bit)", "(bits + bits.sign() * (0x7FFF + last_kept_bit))"),
)
wrong("returns_numpy", "wrong_return_type", "ndarray", (RETURN, RETURN[:-1] + ".numpy()\n"))
wrong(
    "bits_converted_at_the_end",
    "representable",
    "became 1.06535322e+09",
    ("rounded.view(torch.float32)", "rounded.to(torch.float32)"),
)


@TABLE.mistake("subnormal", "subnormal values")
def by_frexp_with_a_step_that_goes_on_shrinking(x):
    fraction, exponent = torch.frexp(x.double())
    step = torch.ldexp(torch.ones_like(fraction), exponent - 8)
    rounded = ((x.double() / step).round() * step).float()
    return torch.where(rounded.abs() > 3.39e38, x.sign() * torch.inf, torch.where(x == 0, x, rounded))
