"""Views of rounding against PyTorch's own casts and ``finfo``; what they draw, and how, their stories say."""

import math

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from amp_lessons import parallel
from amp_lessons._base.text.words import relative, share
from amp_lessons.course.views import (
    OutlierView,
    ReductionView,
    RulerView,
    ScaleView,
    UpdateView,
    format_table,
)
from amp_lessons.course.views.widgets.ruler import ruler_picture
from amp_lessons.course.views.widgets.scale import ELEMENTS
from amp_lessons.formats import FORMATS
from tests.raised import as_float, lowered


@pytest.fixture
def tensor():
    return torch.randn(16, 256, generator=torch.Generator().manual_seed(0)) * 2.0**-12


@pytest.mark.parametrize("exponent", [-2, 12, 22])
def test_the_caption_says_what_pytorchs_own_cast_does(tensor, exponent):
    caption = ScaleView(tensor, exponent=exponent).caption
    cast = (tensor * 2.0**exponent).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    error = ((cast * 2.0**-exponent).double() - tensor.double()).norm() / tensor.double().norm()
    assert lowered(caption).startswith(f"Multiplied by 2^{exponent} (scale 2^{-exponent}), in fp8_e4m3: ")
    assert f"{share(int((cast == 0).sum()), 4096)} of 4,096 elements become zero" in caption
    assert f"Error: {relative(error.item())} of the norm." in caption


def test_an_outlier_costs_four_bits_the_tensor_and_a_block_only_itself_and_the_tensor_is_left_alone(tensor):
    before = tensor.clone()
    view = ScaleView(tensor, "fp4_e2m1", outlier=6)
    errors = [view.error_of(way) for way in ("1 × 16", "1 × 32", "1 × 128", "row", "tensor")]
    assert errors == sorted(errors)
    assert errors[0] < 0.2
    assert errors[-1] > 0.9
    assert torch.equal(tensor, before)


@pytest.mark.parametrize("format", ELEMENTS)
def test_the_slider_reaches_from_losing_all_to_saturating(format):
    view = ScaleView(format=format)
    view.exponent = view._slider.max
    assert "none saturate" not in view.caption
    view.exponent = view._slider.min
    assert "none saturate" in view.caption


def test_one_dimension_is_enough_and_zeros_do_not_count():
    assert "of 2 elements" in ScaleView(torch.tensor([0.0, 1.0, 2.0]), outlier=3).caption


@pytest.mark.parametrize("exponent", [-8, -7])
def test_the_weights_are_those_that_pytorch_arrives_at(exponent):
    view = UpdateView(exponent, steps=100)
    plain = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(100):
        plain = (plain.float() + 2.0**exponent).bfloat16()
    exact = 1 + 100 * 2.0**exponent
    assert f"plain {plain.item():.6g}, fp32 copy {torch.tensor(exact).bfloat16().item():.6g}," in view.caption


def test_the_learners_matrix_is_left_alone():
    matrix = torch.randn(32, 64)
    before = matrix.clone()
    OutlierView(matrix, 4)
    assert torch.equal(matrix, before)


def test_the_caption_counts_the_values_in_view():
    values = torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).double()
    count = int(((values >= 2.0**-9) & (values <= 2.0**9)).sum())
    view = RulerView(around=1, zoom=4)  # 288 / 16 = 18 binades: 2^-9 to 2^9
    assert view.caption.startswith("From 2⁻⁹ to 2⁹, values in view:")
    assert f"fp16 {count:,}," in view.caption
    view.around = "0.1"
    assert view.around == pytest.approx(0.1, rel=1e-6)


def test_ticks_stand_at_the_values_of_the_format():
    picture = ruler_picture(0.0, 1.0, [FORMATS["bf16"]], {})
    (ticks,) = (each for each in picture.figure.axes[0].collections if isinstance(each, LineCollection))
    places = sorted(segment[0][0] for segment in ticks.get_segments())
    np.testing.assert_allclose(places, np.log2(1 + np.arange(129) / 128), atol=1e-12)


@pytest.mark.parametrize(
    ("around", "zoom", "seen"), [("2048", 11, False), ("2^-12", 0, True), ("2^-20", 9, True)]
)
def test_subnormals_are_explained_where_there_are_any(around, zoom, seen):
    texts = [text.get_text() for text in RulerView(around=around, zoom=zoom).picture.figure.texts]
    assert ("dotted or thin: subnormal" in texts) == seen


@pytest.mark.parametrize("row", format_table().records, ids=lambda row: row["format"])
def test_the_figures_of_a_format_are_those_of_its_values_and_of_finfo(row):
    each = FORMATS[row["format"]]
    assert row["used for"]
    if each.bits <= 16:
        positive = [value for value in map(each.decode, range(2**each.bits)) if value > 0]
        assert lowered(row["smallest"]) == f"2^{int(math.log2(min(positive)))}"
    if each.name in ("tf32", "fp4_e2m1", "e8m0"):
        return
    info = torch.finfo(each.dtype)
    assert as_float(row["largest"]) == pytest.approx(info.max, rel=1e-4)
    assert lowered(row["smallest normal"]) == f"2^{int(math.log2(info.smallest_normal))}"
    assert row["bits"] == str(info.bits) == str(sum(map(int, row["s/e/m"].split("/"))))
    has_infinity = torch.tensor(torch.inf).to(each.dtype).float().isinf()
    assert row["inf, nan"] == ("both" if has_infinity else "nan")


def test_all_formats_are_there():
    assert [row["format"] for row in format_table().records] == list(FORMATS)


def test_what_rounding_took_of_the_mean_is_said():
    view = ReductionView(parallel.rank_gradients(1024, 8), exponent=10)
    (size,) = parallel.growth(parallel.rank_gradients(1024, 8), torch.bfloat16, ranks=[1024]).sizes
    assert f"{size:.2f} of its length" in view.caption
    view.dtype = "fp32"
    assert "of its length" not in view.caption


def test_dividing_first_is_another_mean():
    gradients = torch.full((8, 4), 40000.0)
    view = ReductionView(gradients, dtype="fp16", op="ddp")
    assert view.error == parallel.reduction(gradients, torch.float16, op="ddp").relative_error
    assert np.isfinite(view.error)
