"""The census of gradients and the probe behind lesson 03's slider: how fast on the device, and whether right.

A census counts; on the same numbers the device has to count what the CPU counts, bit for bit.
"""

from __future__ import annotations

import hashlib
import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.material.models import digits_classifier
from amp_lessons.measure import time_step
from amp_lessons.scaling import Census, LossScaleProbe, backward_by_layer, census, gradients
from tools.gpu.found import Agreement, Figure, Found, Place

FULL_COUNT, SMALL_COUNT = 10**8, 10**4
SCALE = 2.0**10
DTYPES = (torch.float16, torch.bfloat16, torch.float8_e5m2)
_EXACT = "counts of the same numbers"


def parts(place: Place) -> tuple[str, ...]:
    """Name the kinds of numbers that are counted, and the slider."""
    return (*KINDS, "slider")


def run(name: str, place: Place) -> Found:
    """Count, or move the slider."""
    return _slider(place) if name == "slider" else _counted(name, place)


def _normal(count: int, draw: torch.Generator) -> Tensor:
    return torch.randn(count, generator=draw)


def _lognormal(count: int, draw: torch.Generator) -> Tensor:
    return torch.randn(count, generator=draw).mul_(3.0).exp_().mul_(1e-6)


def _any_bits(count: int, draw: torch.Generator) -> Tensor:
    limits = torch.iinfo(torch.int32)
    return torch.randint(limits.min, limits.max, (count,), generator=draw, dtype=torch.int32).view(
        torch.float32
    )


KINDS = {"normal": _normal, "lognormal": _lognormal, "any bits": _any_bits}


def _counted(name: str, place: Place) -> Found:
    count = FULL_COUNT if place.is_full else SMALL_COUNT
    here = KINDS[name](count, torch.Generator().manual_seed(0))
    there = here.to(place.device)
    agreements = tuple(
        Agreement(
            f"{count:,} {name} gradients × 2^10 in {dtype}",
            words(census(here, dtype, SCALE)),
            words(census(there, dtype, SCALE)),
            _EXACT,
        )
        for dtype in DTYPES
    )
    timing = time_step(lambda: census(there, DTYPES[0], SCALE), device=place.device, seconds=1.0)
    return Found((Figure(f"census of {count:,} gradients", timing.median_ms, "ms"),), agreements)


def words(found: Census) -> str:
    """Say the counts, and in one word how many there are of each fate in every binade."""
    by_binade = repr([(fate, sorted(binades.items())) for fate, binades in sorted(found.fates.items())])
    counts = (found.zero, found.nonfinite, found.underflowed, found.subnormal, found.normal, found.overflowed)
    named = zip(
        ("zero", "non-finite", "underflowed", "subnormal", "normal", "overflowed"), counts, strict=True
    )
    listed = ", ".join(f"{name} {count:,}" for name, count in named)
    return f"{listed}; binades {hashlib.sha256(by_binade.encode()).hexdigest()[:8]}"


def _slider(place: Place) -> Found:
    """Move through scales, each a backward pass; then count the true gradients in both places."""
    draw = torch.Generator().manual_seed(0)
    model = digits_classifier(4096 if place.is_full else 64)
    batch = torch.rand(32, 64, generator=draw), torch.randint(0, 10, (32,), generator=draw)
    model, batch = model.to(place.device), (batch[0].to(place.device), batch[1].to(place.device))
    probe = LossScaleProbe(model, batch, F.cross_entropy)
    exponents = itertools.cycle(range(24))
    timing = time_step(lambda: probe.at(2.0 ** next(exponents)), device=place.device, seconds=1.0)
    fresh = backward_by_layer(model, batch, F.cross_entropy, SCALE)
    moved = [
        Agreement(f"slider at 2^10, {layer}", words(fresh[layer]), words(counts), _EXACT)
        for layer, counts in probe.at(SCALE).items()
    ]
    true = gradients(model, batch, F.cross_entropy)
    counted = [
        Agreement(f"true gradients of {layer}", words(census(each.cpu())), words(census(each)), _EXACT)
        for layer, each in true.items()
    ]
    figures = (
        Figure("parameters", sum(each.numel() for each in true.values())),
        Figure("a move of the slider", timing.median_ms, "ms"),
    )
    return Found(figures, (*moved, *counted))
