"""The two views of lesson 11's decoder: what they say and draw is what the decoder computes."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import decoder, formats
from amp_lessons.course.material.decoder import PARTS, Arithmetic
from amp_lessons.course.views import FewBitsView, PartsView
from amp_lessons.course.views.widgets.few_bits import GROUPS


@pytest.fixture(scope="module")
def model():
    return decoder.decoder(40).requires_grad_(False)


@pytest.fixture(scope="module")
def text():
    tokens = torch.randint(40, (4, 33), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.fixture
def parts(model, text):
    return PartsView(model, *text)


@pytest.fixture
def few_bits(model, text):
    return FewBitsView(model, *text)


def bars(view):
    return [bar.get_height() for bar in view.picture.figure.axes[0].patches if bar.get_height() >= 1]


@pytest.mark.few(2)
@pytest.mark.parametrize("chosen", [PARTS, ("head", "loss"), ("norms",)])
@pytest.mark.parametrize("format", ["bf16", "fp16"])
def test_it_says_what_these_parts_change(parts, model, text, chosen, format):
    parts.parts, parts.format = chosen, format
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[format]
    how = Arithmetic(dict.fromkeys(chosen, dtype))
    off = (decoder.log_probabilities(model, *text, how) - decoder.log_probabilities(model, *text)).abs()
    assert f"typically changes by {off.median():.4f}, by {off.max():.3f} at most" in parts.caption
    assert parts.caption.startswith("All parts" if chosen == PARTS else ", ".join(chosen))
    assert sum(bars(parts)) == off.numel()


def test_a_click_changes_one_part(parts):
    before = parts.caption
    parts._boxes["loss"].value = False
    assert parts.parts == tuple(part for part in PARTS if part != "loss")
    assert parts.caption != before


def test_without_any_part_nothing_changes(parts):
    parts.parts = ()
    assert parts.caption == "All parts in fp32: no log-probability changes."
    assert len(parts.picture.figure.axes[0].lines) == 0


def test_experts_can_be_kept(parts, model, text):
    with torch.no_grad():
        model(text[0])
    kept = model.chosen
    parts.replayed = True
    assert all(map(torch.equal, parts.arithmetic.routes, kept))
    assert "0 choices of experts differ" in parts.caption


def test_a_part_that_is_not_there_is_refused(model, text):
    with pytest.raises(ValueError, match="there is no part mlp"):
        PartsView(model, *text, parts=("mlp",))


@pytest.mark.few(5)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("place", range(len(GROUPS)))
def test_it_says_the_perplexity_of_weights_in_few_bits(few_bits, model, text, bits, place):
    few_bits.bits, few_bits.group = bits, place
    small = decoder.with_block_weights(
        model, lambda weight: formats.by_groups(weight, bits, GROUPS[place]).dequantize()
    )
    assert f"perplexity {decoder.perplexity(small, *text):.3f}," in few_bits.caption
    x, y = few_bits.picture.figure.axes[0].lines[-1].get_data()
    assert list(y) == [decoder.perplexity(small, *text)]
    if GROUPS[place] is not None:
        assert list(x) == [bits + 16 / GROUPS[place]]


def test_its_curve_has_a_point_for_each_number_of_bits(few_bits):
    curve = few_bits.picture.figure.axes[0].lines[1]
    assert list(curve.get_xdata()) == [bits + 0.5 for bits in range(2, 9)]
