"""Rooflines: what is measured, and what data sheets promise; the stories say where all of it is drawn."""

import re
from dataclasses import replace

import pytest

from amp_lessons._base.drawing.style import dtype_colour
from amp_lessons.course.views import RooflineView, roofline_of
from amp_lessons.course.views.widgets.roofline import roofline_picture
from amp_lessons.measure import GPUS
from tests.course.views.samples import product_rate, survey


@pytest.fixture
def measured(monkeypatch):
    """Products that take no time: each is said to reach 50 GFLOP/s, of size 1000 150."""
    asked = []

    def quickly(size, precision_name, **_):
        asked.append((size, precision_name))
        return product_rate(size, precision_name)

    monkeypatch.setattr("amp_lessons.measure.operations.product_rate", quickly)
    return asked


def test_each_move_measures_one_product_and_what_was_measured_or_takes_minutes_none(measured):
    view = RooflineView(survey())
    view.size = 60_000
    assert measured == []
    view._slider.value = 16
    view.size = "0511"  # the slider follows
    assert measured == [(256, "fp32"), (511, "fp32")]
    view.size = most = view.survey.largest_size("fp32")
    assert view.size == view.product.size == most


def test_each_roof_has_the_colour_of_its_precision_and_a_stroke_of_its_own(measured):
    lines = {line.get_label(): line for line in RooflineView(survey()).picture.figure.axes[0].lines}
    assert all(lines[name].get_color() == dtype_colour(name) for name in ("fp32", "fp16"))
    assert lines["fp32"].get_linestyle() != lines["fp16"].get_linestyle()


@pytest.mark.parametrize(
    ("fp16", "verdict"),
    [(40.0, "0.40x as fast"), (99.0, "no difference (0.99x"), (101.0, "no difference (1.01x"), (200.0, "")],
)
def test_fp16_on_a_cpu_is_told_by_its_verdict(measured, fp16, verdict):
    caption = RooflineView(survey(fp16)).caption
    assert ("On this CPU fp16 products are not faster" in caption) == bool(verdict)
    assert verdict in caption


def test_where_products_of_fp16_were_too_slow_for_any_size_of_fp32_nothing_is_compared(measured):
    found = survey()
    *others, last = found.roofline.products
    alone = replace(found.roofline, products=(*others, replace(last, size=64)))
    assert "not faster" not in RooflineView(replace(found, roofline=alone)).caption


def test_names_of_roofs_close_together_do_not_touch():
    texts = roofline_picture(survey(99.0).roofline.roofs, "here").figure.axes[0].texts
    low, high = sorted(text.get_position()[1] for text in texts if "ridge" in text.get_text())
    assert high / low > 1.15


@pytest.mark.few(4)
@pytest.mark.parametrize("gpu", GPUS)
def test_a_data_sheet_is_drawn_as_computed(gpu):
    still, sheet = roofline_of(gpu), GPUS[gpu]
    assert still.caption.startswith(f"{gpu}, computed from the data sheet, not measured: ")
    (expression,) = re.findall(r"measure\.(GPUS\[.+\]\.source)", still.caption)
    assert eval(expression) == sheet.source
    drawn = {line.get_label(): line.get_xdata() for line in still.picture.figure.axes[0].lines}
    for precision, flop_per_s in sheet.flop_per_s.items():
        assert drawn[precision][1] == pytest.approx(flop_per_s / sheet.bytes_per_s)
        assert re.search(rf"{precision} [\d.,]+ TFLOP/s", still.caption)
