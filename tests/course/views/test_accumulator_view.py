"""The view of long sums: what it says and where its line goes, against one product of that length."""

import numpy as np
import pytest

from amp_lessons import fp8
from amp_lessons._base.text.words import relative
from amp_lessons.course.views import AccumulatorView
from amp_lessons.formats import relative_error


@pytest.fixture(scope="module")
def shared():
    return AccumulatorView()


@pytest.fixture
def view(shared):
    for name, value in {"length": 12, "bits": 14, "interval": 13, "signs": "of both signs"}.items():
        setattr(shared, name, value)
    return shared


def error_alone(length, accumulation, positive=False):
    sums = fp8.long_sums(positive=positive)
    left, right = sums.left[:, :length], sums.right[:, :length]
    return relative_error(fp8.accumulate(left, right, accumulation), left.double() @ right.double().t())


def test_it_begins_with_what_deepseek_found(view):
    error = error_alone(4096, fp8.Accumulation(14))
    assert view.caption.startswith("4,096 products per sum, of both signs, added up in 14 bits: ")
    assert f"the sums are {relative(error)} off" in view.caption
    assert view.accumulation == fp8.Accumulation(fp8.RECIPES["deepseek_v3"].accumulation.bits)
    assert f"to fp32 every 128: {relative(error_alone(4096, fp8.Accumulation(14, 128)))}" in view.caption


@pytest.mark.parametrize(
    ("moves", "accumulation", "length"),
    [
        ({"interval": 7}, fp8.Accumulation(14, 128), 4096),
        ({"bits": 9, "length": 8}, fp8.Accumulation(9), 256),
        ({"bits": 23, "interval": 12, "length": 14}, fp8.Accumulation(23, 4096), 16384),
        ({"bits": 24, "interval": 5, "length": 5}, fp8.FP32, 32),
    ],
)
def test_each_control_does_what_it_says(view, moves, accumulation, length):
    for name, value in moves.items():
        setattr(view, name, value)
    assert view.accumulation == accumulation
    assert view.error == error_alone(length, accumulation)
    assert f"added up in {accumulation}: the sums are {relative(view.error)} off" in view.caption


def test_the_line_is_drawn_through_the_errors_and_the_mark_at_the_length(view):
    view.interval, view.length = 8, 10
    line, mark = view.picture.moving
    sums = fp8.long_sums()
    errors = sums.errors(fp8.Accumulation(14, 256))
    np.testing.assert_allclose(line.get_path().vertices, list(zip(sums.lengths, errors, strict=True)))
    axes = view.picture.figure.axes[0]
    centre = mark.get_path().vertices[:4].mean(0)
    there = axes.transData.inverted().transform(axes.transAxes.transform(centre))
    np.testing.assert_allclose(there, [1024, errors[sums.lengths.index(1024)]], rtol=1e-6)


def test_moves_draw_nothing_anew_and_come_back_to_where_they_were(view):
    picture, before = view.picture, view.picture.pixels().tobytes()
    view.length, view.bits = 6, 8
    assert view.picture is picture
    assert view.picture.pixels().tobytes() != before
    view.length, view.bits = 12, 14
    assert view.picture.pixels().tobytes() == before


def test_other_products_have_other_lines_to_compare_with(view):
    before = view.picture.figure.axes[0].lines[0].get_ydata()[-1]
    view.signs = "all positive"
    assert view.picture.figure.axes[0].lines[0].get_ydata()[-1] > 10 * before
    assert "all positive, added up" in view.caption


def test_promotion_rests_while_sums_are_in_fp32(view):
    view.bits = 24
    assert view._interval.disabled
    view.bits = 23
    assert not view._interval.disabled


def test_without_a_kernel_it_is_a_sentence_and_a_picture(view):
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == f"[computed] {view.caption}"
    assert bundle["image/png"]
    assert view.children[-1].alt.startswith("Relative error of sums of products")
    assert "DeepSeek-V3" in view._bits.readouts[14 - view._bits.min]
