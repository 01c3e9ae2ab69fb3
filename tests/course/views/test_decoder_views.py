"""The two views of lesson 11's decoder: what they say and draw is what the decoder computes."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import decoder, formats
from amp_lessons.course.material.decoder import PARTS, Arithmetic
from amp_lessons.course.views import FewBitsView, PartsView
from amp_lessons.course.views.widgets.few_bits import GROUPS


@pytest.fixture(scope="module")
def case():
    tokens = torch.randint(40, (4, 33), generator=torch.Generator().manual_seed(0))
    return decoder.decoder(40).requires_grad_(False), tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize(
    ("chosen", "format"), [(PARTS, "bf16"), (("head", "loss"), "fp16"), (("norms",), "bf16")]
)
def test_it_says_what_these_parts_change(case, chosen, format):
    view = PartsView(*case)
    view.parts, view.format = chosen, format
    how = Arithmetic(dict.fromkeys(chosen, {"bf16": torch.bfloat16, "fp16": torch.float16}[format]))
    off = (decoder.log_probabilities(*case, how) - decoder.log_probabilities(*case)).abs()
    assert f"typically changes by {off.median():.4f}, by {off.max():.3f} at most" in view.caption
    assert view.caption.startswith("All parts" if chosen == PARTS else ", ".join(chosen))
    bars = [bar.get_height() for bar in view.picture.figure.axes[0].patches]
    assert sum(height for height in bars if height >= 1) == off.numel()


def test_a_click_changes_one_part_and_without_any_nothing_changes(case):
    view = PartsView(*case)
    before = view.caption
    view._boxes["loss"].value = False
    assert view.parts == tuple(part for part in PARTS if part != "loss")
    assert view.caption != before
    view.parts = ()
    assert view.caption == "All parts in fp32: no log-probability changes."
    assert len(view.picture.figure.axes[0].lines) == 0


def test_experts_can_be_kept(case):
    view, (model, inputs, _) = PartsView(*case), case
    model(inputs)
    kept = model.chosen
    view.replayed = True
    assert all(map(torch.equal, view.arithmetic.routes, kept))
    assert "0 choices of experts differ" in view.caption


@pytest.mark.parametrize(("bits", "place"), [(2, 0), (4, 3), (8, len(GROUPS) - 1)])
def test_it_says_the_perplexity_of_weights_in_few_bits(case, bits, place):
    view, (model, *text) = FewBitsView(*case), case
    view.bits, view.group = bits, place
    small = decoder.with_block_weights(
        model, lambda weight: formats.by_groups(weight, bits, GROUPS[place]).dequantize()
    )
    assert f"perplexity {decoder.perplexity(small, *text):.3f}," in view.caption
    x, y = view.picture.figure.axes[0].lines[-1].get_data()
    assert list(y) == [decoder.perplexity(small, *text)]
    if GROUPS[place] is not None:
        assert list(x) == [bits + 16 / GROUPS[place]]
        curve = view.picture.figure.axes[0].lines[1]
        assert list(curve.get_xdata()) == [each + 16 / GROUPS[place] for each in range(2, 9)]
