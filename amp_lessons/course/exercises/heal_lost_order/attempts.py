"""Half-mended rotations, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_lost_order")
wrong = TABLE.mutant
right = TABLE.variant

EXPONENTS = "dtype=torch.float32) / half"
ANGLES = "positions.float()[:, None] * base**-exponents"
CAST = "cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)"

wrong(
    "cast_after_rounding",
    "positions_rounded",
    "odd numbers",
    (ANGLES, "positions.to(x.dtype).float()[:, None] * base**-exponents"),
)
wrong(
    "frequencies_left_in_16_bits",
    "wrong_rotation",
    "position 4094",
    (EXPONENTS, "dtype=x.dtype) / half"),
)
wrong(
    "angles_rounded",
    "wrong_rotation",
    "position 3371",
    (
        ANGLES,
        ANGLES.replace(
            "positions.float()[:, None] * base**-exponents",
            "(positions.float()[:, None] * base**-exponents).to(x.dtype).float()",
        ),
    ),
)
wrong(
    "angles_cast_with_the_rest",
    "wrong_rotation",
    "position 3371",
    (CAST, "angles = angles.to(x.dtype)\n    cos, sin = angles.cos(), angles.sin()"),
)
wrong(
    "matmul_in_fp32",
    "angles_cast_back",
    "without autocast",
    (ANGLES, "positions.float()[:, None] @ (base**-exponents)[None]"),
)
wrong(
    "einsum_of_an_outer_product",
    "angles_cast_back",
    "without autocast",
    (ANGLES, 'torch.einsum("i,j->ij", positions.float(), base**-exponents)'),
)
wrong(
    "everything_stays_fp32", "wrong_return_type", "float32", (CAST, "cos, sin = angles.cos(), angles.sin()")
)
wrong(
    "fp16_for_all",
    "positions_rounded",
    "odd numbers",
    (ANGLES, "positions.half()[:, None].float() * base**-exponents"),
)
wrong(
    "positions_clamped",
    "wrong_rotation",
    "position",
    (ANGLES, "positions.clamp(max=256).float()[:, None] * base**-exponents"),
)
wrong(
    "positions_wrapped",
    "wrong_rotation",
    "position",
    (ANGLES, "(positions % 256).float()[:, None] * base**-exponents"),
)
wrong(
    "positions_shrunk",
    "wrong_rotation",
    "position",
    (ANGLES, "(positions.float() / len(positions))[:, None] * base**-exponents"),
)
wrong(
    "counted_instead_of_given",
    "wrong_rotation",
    "position",
    (ANGLES, "torch.arange(len(positions), device=x.device).float()[:, None] * base**-exponents"),
)
wrong(
    "table_of_8192",
    "wrong_rotation",
    "at 7 positions",
    (
        ANGLES,
        "torch.arange(8_192, device=x.device)[positions.clamp(max=8_191)].float()[:, None] * base**-exponents",
    ),
)
wrong(
    "counted_from_the_first",
    "wrong_rotation",
    "position",
    (ANGLES, "(positions - positions[0]).float()[:, None] * base**-exponents"),
)
wrong(
    "counted_from_the_lowest",
    "wrong_rotation",
    "position 4095",
    (ANGLES, "(positions - positions.min()).float()[:, None] * base**-exponents"),
)
wrong(
    "positions_in_int16",
    "wrong_rotation",
    "position",
    (ANGLES, "positions.to(torch.int16).float()[:, None] * base**-exponents"),
)
wrong(
    "angles_kept_from_call_to_call",
    "wrong_rotation",
    "position",
    ("base=10_000.0):", "base=10_000.0, kept={}):"),
    (CAST, f"angles = kept.setdefault(angles.shape, angles)\n    {CAST}"),
)
wrong(
    "without_a_graph",
    "gradients_cut_off",
    "no gradient",
    ("    half = x", "    x = x.detach()\n    half = x"),
)
wrong(
    "half_a_graph",
    "rotation_gradients",
    "not that of a rotation",
    ("x[..., :half], x[..., half:]", "x[..., :half], x[..., half:].detach()"),
)
wrong(
    "autocast_left_off",
    "leaves_state_behind",
    "autocast for CPU off",
    (ANGLES, "positions.float()[:, None] @ (base**-exponents)[None]"),
    ("    exponents", "    torch.set_autocast_enabled(x.device.type, False)\n    exponents"),
)
wrong("base_forgotten", "wrong_rotation", "position", ("base**-exponents", "10_000.0**-exponents"))
wrong(
    "turned_the_other_way",
    "wrong_rotation",
    "position",
    (
        "first * cos - second * sin, first * sin + second * cos",
        "first * cos + second * sin, second * cos - first * sin",
    ),
)
wrong(
    "neighbours_paired",
    "wrong_rotation",
    "position",
    ("x[..., :half], x[..., half:]", "x[..., ::2], x[..., 1::2]"),
)
wrong(
    "in_place",
    "inputs_changed",
    "in place",
    ("    return torch.cat(", "    x.copy_(torch.cat("),
    ("dim=-1)", "dim=-1))\n    return x"),
)

right("the_solution")
right("angles_in_fp64", (ANGLES, "positions.double()[:, None] * base**-exponents.double()"))
right(
    "within_one_turn_in_16_bits",
    (CAST, "angles = (angles % (2 * torch.pi)).to(x.dtype)\n    cos, sin = angles.cos(), angles.sin()"),
)
right("outer", (ANGLES, "torch.outer(positions.float(), base**-exponents)"))
right("einsum_in_fp64", (ANGLES, 'torch.einsum("i,j->ij", positions.double(), base**-exponents.double())'))


@TABLE.correct()
def autocast_switched_off(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    with torch.autocast(x.device.type, enabled=False):
        frequencies = 1.0 / base ** (torch.arange(0, 2 * half, 2, device=x.device).float() / (2 * half))
        angles = torch.einsum("i,j->ij", positions.float(), frequencies)
        turned = x.float() * torch.cat([angles, angles], -1).cos()
        other = torch.cat([-x[..., half:], x[..., :half]], -1).float()
        return (turned + other * torch.cat([angles, angles], -1).sin()).to(x.dtype)


@TABLE.correct()
def complex_numbers(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-torch.arange(half, device=x.device) / half)
    turned = torch.complex(*x.float().chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


@TABLE.correct()
def two_small_positions(x, positions, base=10_000.0):
    """The angle of a sum is a sum of angles: high and low parts of a position, each exact in fp32."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=x.device).double() / half)
    angles = (positions // 64 * 64)[:, None] * frequencies + (positions % 64)[:, None] * frequencies
    rotation = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).unflatten(
        -1, (2, 2)
    )
    pairs = torch.stack([x[..., :half], x[..., half:]], -1).double()
    turned = (rotation * pairs[..., None, :]).sum(-1)
    return torch.cat([turned[..., 0], turned[..., 1]], -1).to(x.dtype)


# --- written without a look at the check
COS_SIN = "    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)\n"
HALVES = "    first, second = x[..., :half], x[..., half:]\n"
ROTATED = "first * cos - second * sin, first * sin + second * cos"
TABLE.mutant(
    "the_other_way_round",
    "wrong_rotation",
    "off by",
    (ROTATED, "first * cos + second * sin, second * cos - first * sin"),
)
TABLE.mutant(
    "pairs_of_neighbours",
    "wrong_rotation",
    "off by",
    (HALVES, "    first, second = x[..., 0::2], x[..., 1::2]\n"),
    (f"torch.cat([{ROTATED}], dim=-1)", f"torch.stack([{ROTATED}], dim=-1).flatten(-2)"),
)
TABLE.mutant(
    "rows_numbered_in_order",
    "wrong_rotation",
    "at 7 positions",
    ("positions.float()[:, None]", "torch.arange(x.shape[-2], device=x.device).float()[:, None]"),
)
TABLE.mutant("base_typed_in", "wrong_rotation", "a base of 500,000", ("base**-", "10_000.0**-"))
TABLE.mutant(
    "angles_kept_for_a_length",
    "wrong_rotation",
    "a base of 500,000",
    ("import torch\n", "import torch\n\n_tables = {}\n"),
    (
        COS_SIN,
        "    key = len(positions), half, x.dtype\n    if key not in _tables:\n"
        "        _tables[key] = angles.cos().to(x.dtype), angles.sin().to(x.dtype)\n"
        "    cos, sin = _tables[key]\n",
    ),
)
