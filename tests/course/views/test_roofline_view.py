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


@pytest.fixture
def view(measured):
    return RooflineView(survey())


def lines(view):
    return {line.get_label(): line for line in view.picture.figure.axes[0].lines}


def star(view):
    (found,) = [line for line in view.picture.figure.axes[0].lines if line.get_marker() == "*"]
    return found.get_xdata()[0], found.get_ydata()[0]


def test_a_product_of_the_survey_is_not_measured_again(view, measured):
    assert measured == []
    assert view.product == survey().square_product(512, "fp32")
    assert view.caption.startswith(
        "512 × 512 in fp32: 100 GFLOP/s, 100 % of what the roof allows at 85.3 FLOP per byte, "
        "where arithmetic is the bound. Measured on cpu: fp32 products reach 100 GFLOP/s"
    )


def test_each_roof_goes_up_to_its_ridge_and_stays_flat(view):
    roofline = view.survey.roofline
    for name in ("fp32", "fp16"):
        line = lines(view)[name]
        xs, ys = line.get_xdata(), line.get_ydata()
        assert line.get_color() == dtype_colour(name)
        assert xs[1] == roofline.ridge_point(name)
        assert list(ys[1:]) == [roofline.flop_per_s(name)] * 2
        assert ys[0] == pytest.approx(roofline.attainable_flop_per_s(name, xs[0]))
    assert lines(view)["fp32"].get_linestyle() != lines(view)["fp16"].get_linestyle()


def test_every_operation_lies_where_it_was_measured(view):
    points = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in view.picture.figure.axes[0].lines
        if line.get_marker() in "os^P" and line.get_marker()
    }
    assert points == {(each.intensity, each.flop_per_s) for each in survey().operations}


def test_the_slider_measures_a_product_and_moves_its_point(view, measured):
    before = view.picture.png()
    view._slider.value = 16
    assert measured == [(256, "fp32")]
    assert view.size == 256
    assert star(view) == (view.product.intensity, view.product.flop_per_s)
    assert view.caption.startswith(
        "256 × 256 in fp32: 50.0 GFLOP/s, 50 % of what the roof allows at 42.7 FLOP"
    )
    assert view.picture.png() != before


@pytest.mark.parametrize("typed", ["511", 511, "0511"])
def test_odd_sizes_are_typed_and_the_slider_follows_without_measuring_again(view, measured, typed):
    view.size = typed
    assert measured == [(511, "fp32")]
    assert view.size == 511
    assert view._slider.value == 32
    assert view.caption.startswith("511 × 511")


def test_a_product_that_would_take_minutes_is_refused(view, measured):
    view.size = 60_000
    most = view.survey.largest_size("fp32")
    assert f"up to {most:,} it is measured" in view.caption
    assert measured == []
    view.size = most
    assert view.size == most


@pytest.mark.parametrize(
    ("fp16", "verdict"),
    [(40.0, "0.40x as fast"), (99.0, "no difference (0.99x"), (101.0, "no difference (1.01x"), (200.0, "")],
)
def test_fp16_on_a_cpu_is_told_by_its_verdict(measured, fp16, verdict):
    caption = RooflineView(survey(fp16)).caption
    assert ("On this CPU fp16 products are not faster" in caption) == bool(verdict)
    assert verdict in caption
    assert f"fp16 {fp16 / 100:.2f}" in caption


def test_where_products_of_fp16_were_too_slow_for_any_size_of_fp32_nothing_is_compared(measured):
    found = survey()
    *others, last = found.roofline.products
    alone = replace(found.roofline, products=(*others, replace(last, size=64)))
    assert "not faster" not in RooflineView(replace(found, roofline=alone)).caption


def test_names_of_roofs_close_together_do_not_touch():
    texts = [
        text
        for text in roofline_picture(survey(99.0).roofline.roofs, "here").figure.axes[0].texts
        if "ridge" in text.get_text()
    ]
    low, high = sorted(text.get_position()[1] for text in texts)
    assert high / low > 1.15


@pytest.mark.few(4)
@pytest.mark.parametrize("gpu", GPUS)
def test_a_data_sheet_is_drawn_as_computed(gpu):
    still, sheet = roofline_of(gpu), GPUS[gpu]
    assert still.caption.startswith(f"{gpu}, computed from the data sheet, not measured: ")
    (expression,) = re.findall(r"measure\.(GPUS\[.+\]\.source)", still.caption)
    assert eval(expression) == sheet.source
    assert not still._repr_mimebundle_()["text/plain"].startswith("[measured]")
    drawn = lines(still)
    for precision, flop_per_s in sheet.flop_per_s.items():
        assert drawn[precision].get_xdata()[1] == pytest.approx(flop_per_s / sheet.bytes_per_s)
        assert re.search(rf"{precision} [\d.,]+ TFLOP/s", still.caption)


def test_half_the_bytes_put_the_same_product_twice_as_far_right():
    still = roofline_of("A100 SXM 80 GB", product=16)
    places = [
        (line.get_xdata()[0], line.get_ydata()[0], line.get_color())
        for line in still.picture.figure.axes[0].lines
        if line.get_marker() == "o"
    ]
    (wide_x, wide_y, wide_colour), (half_x, half_y, half_colour) = places
    assert (half_x / wide_x, half_y / wide_y) == (2, pytest.approx(2))
    assert (wide_colour, half_colour) == (dtype_colour("fp32"), dtype_colour("fp16"))
