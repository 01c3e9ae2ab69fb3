"""The view of means over ranks against single simulated reductions; its story says what it draws."""

import numpy as np
import torch

from amp_lessons import parallel
from amp_lessons.course.views import ReductionView


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
