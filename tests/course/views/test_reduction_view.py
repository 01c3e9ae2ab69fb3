"""The view of means over ranks: what it says and draws, against single simulated reductions."""

import numpy as np
import pytest
import torch

from amp_lessons import parallel
from amp_lessons._base.text.words import relative
from amp_lessons.course.views import ReductionView

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@pytest.fixture
def gradients():
    return {"ours": parallel.rank_gradients(64, 24), "noisy": parallel.rank_gradients(64, 24, noise=10)}


@pytest.fixture
def view(gradients):
    return ReductionView(gradients)


@pytest.mark.few(4)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("exponent", "name"), [(1, "ours"), (6, "noisy")])
def test_the_caption_says_what_a_reduction_says(view, gradients, algorithm, dtype, exponent, name):
    view.algorithm, view.dtype, view.exponent, view.gradients = algorithm, dtype, exponent, name
    reduction = parallel.reduction(gradients[name][: 2**exponent], DTYPES[dtype], algorithm)
    assert view.error == reduction.relative_error
    assert view.caption.startswith(f"{2**exponent} ranks ({name}), {algorithm} in {dtype}: ")
    assert f"The mean is {relative(reduction.relative_error)} off" in view.caption


def test_what_rounding_took_of_the_mean_is_said():
    view = ReductionView(parallel.rank_gradients(1024, 8), exponent=10)
    (size,) = parallel.growth(parallel.rank_gradients(1024, 8), torch.bfloat16, ranks=[1024]).sizes
    assert f"{size:.2f} of its length" in view.caption
    view.dtype = "fp32"
    assert "of its length" not in view.caption


def test_lines_are_drawn_through_the_errors_and_the_mark_on_the_picked_one(view):
    view.exponent = 4
    drawing = view.picture
    grown = view.growth("tree", "fp16")
    line = drawing._lines["tree", "fp16"].artist.get_path().vertices
    np.testing.assert_allclose(line, list(zip(grown.ranks, grown.errors, strict=True)))
    axes = drawing.figure.axes[0]
    centre = drawing._mark.artist.get_path().vertices[:4].mean(0)
    there = axes.transData.inverted().transform(axes.transAxes.transform(centre))
    np.testing.assert_allclose(there, [16, view.error], rtol=1e-6)


@pytest.mark.parametrize(("exponent", "sums"), [(1, 2 + 1), (2, 4 + 3), (3, 8 + 7), (6, 8 + 7)])
def test_the_way_of_few_ranks_is_drawn(view, exponent, sums):
    view.exponent = exponent
    diamonds = view.picture._sums.artist.get_path()
    assert len(diamonds.vertices) == 5 * sums
    travelled = view.picture._travels.artist.get_path().vertices
    assert len(travelled) == 2 * (min(2**exponent, 8) - 1)


def test_dividing_first_is_another_mean():
    gradients = torch.full((8, 4), 40000.0)
    view = ReductionView(gradients, dtype="fp16", op="ddp")
    assert view.error == parallel.reduction(gradients, torch.float16, op="ddp").relative_error
    assert np.isfinite(view.error)
