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


@pytest.mark.parametrize(
    ("moves", "accumulation", "length"),
    [
        ({}, fp8.Accumulation(fp8.RECIPES["deepseek_v3"].accumulation.bits), 4096),
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


def test_other_products_have_other_lines_to_compare_with(view):
    before = view.picture.figure.axes[0].lines[0].get_ydata()[-1]
    view.signs = "all positive"
    assert view.picture.figure.axes[0].lines[0].get_ydata()[-1] > 10 * before
    assert "all positive, added up" in view.caption
