import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from amp_lessons.course.views import RulerView
from amp_lessons.course.views.widgets.ruler import ruler_picture, sizes_in_order
from amp_lessons.formats import FORMATS


def values_of_fp16():
    return torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).double()


def test_the_caption_counts_the_values_in_view():
    view = RulerView(around=1, zoom=4)  # 288 / 16 = 18 binades: 2^-9 to 2^9
    values = values_of_fp16()
    count = int(((values >= 2.0**-9) & (values <= 2.0**9)).sum())
    assert view.caption.startswith("From 2⁻⁹ to 2⁹, values in view:")
    assert f"fp16 {count:,}," in view.caption


def test_formats_without_a_value_in_view_are_named():
    view = RulerView(around="2^100", zoom=6)
    below = [name for name, float_format in FORMATS.items() if float_format.max < 2.0**97]
    assert {"fp16", "fp8_e5m2", "fp4_e2m1"} <= set(below)
    assert view.caption.endswith(f"none in {', '.join(below)}.")


def test_a_typed_number_is_the_middle_and_the_slider_follows():
    view = RulerView()
    view.around = "0.1"
    assert view.around == pytest.approx(0.1, rel=1e-6)
    assert view._power.value == -3
    view._power.value = 0
    assert view.around == 1.0


def test_ticks_stand_at_the_values_of_the_format():
    picture = ruler_picture(0.0, 1.0, [FORMATS["bf16"]], {})
    (ticks,) = (each for each in picture.figure.axes[0].collections if isinstance(each, LineCollection))
    places = sorted(segment[0][0] for segment in ticks.get_segments())
    np.testing.assert_allclose(places, np.log2(1 + np.arange(129) / 128), atol=1e-12)


def test_sizes_leave_out_zeros_and_signs():
    assert sizes_in_order(torch.tensor([[-4.0, 0.0], [0.5, -0.0]])).tolist() == [-1.0, 2.0]


def test_tensors_are_counted_in_view_on_any_shape():
    tensor = torch.tensor([[1.0, 2.0], [0.0, 2.0**60]])
    view = RulerView({"weights": tensor}, around=1, zoom=5)
    texts = [text.get_text() for text in view.picture.figure.axes[1].texts]
    assert texts == ["weights", "2", "non-zero"]
    assert "weights lie from 2⁰ to 2⁶⁰." in view.children[-1].value


@pytest.mark.parametrize(
    ("around", "zoom", "seen"), [("2048", 11, False), ("2^-12", 0, True), ("2^-20", 9, True)]
)
def test_subnormals_are_explained_where_there_are_any(around, zoom, seen):
    texts = [text.get_text() for text in RulerView(around=around, zoom=zoom).picture.figure.texts]
    assert ("dotted or thin: subnormal" in texts) == seen
