"""What a recipe in 8 bits would save of this model's own products, on the GPU of the advice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from torch import nn

from amp_lessons._base.text.words import counted, fraction
from amp_lessons.advice.advice import Claim
from amp_lessons.advice.facts import Facts
from amp_lessons.fp8.choices import choice_for, fits

_FP8 = "fp8_e4m3"


def claims_of_eight_bits(facts: Facts) -> Iterator[Claim]:
    """Say which recipe the GPU and its libraries offer, and how much of a step it could save at most."""
    choice, bound, ledger = choice_for(facts.gpu), facts.bounds.get(facts.half), facts.ledger
    if choice is None or bound is None or ledger is None or _FP8 not in facts.sheet.flop_per_s:
        return
    layers = {
        f"model.{name}" if name else "model": module
        for name, module in facts.subject.model.named_modules()
        if isinstance(module, nn.Linear) and fits(module.in_features, module.out_features)
    }
    # each product of the backward pass is as large as the layer's own; the first layer has one, not two
    backward = Counter(row.module for row in ledger.backward if row.op == "aten::mm")
    flop = sum(
        (1 + backward[row.module]) * 2 * math.prod(row.output_shape) * layers[row.module].in_features
        for row in ledger.forward
        if row.module in layers and row.op == "aten::linear"
    )
    total = sum(bound.product_flops.values())
    share = min(1.0, flop / total) if total else 0.0
    times = facts.sheet.flop_per_s[_FP8] / facts.sheet.flop_per_s[facts.half]
    after = bound.ms - share * bound.product_ms * (1 - 1 / times)
    which = f"{counted(len(layers), 'linear layer')} of a size that torchao's filter takes"
    because = (
        f"{which}: {fraction(share)} of the FLOP of all products, which bound "
        f"{fraction(bound.product_ms / bound.ms)} of the least time of a step in {facts.half}; at the rate "
        f"of FP8 it is {bound.ms / after:.2f} times as fast at most, casts not counted"
    )
    if bound.ms / after < _WORTH:
        text = f"FP8 has little to give this model on the {facts.gpu} at this batch."
        yield Claim("watch", text, f"{because}.", "computed")
    else:
        text = f"Once it trains in {facts.half}, try FP8 on the {facts.gpu}: {choice.words}."
        more = f"{because}; the recipes were read in torchao 0.18 and Transformer Engine 2.20, lesson 09."
        yield Claim("watch", text, more, "computed")


_WORTH = 1.2  # times as fast at most: of a roofline's promise casts take their part
