"""The ruler against the values of PyTorch's formats; its story says how it is moved."""

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from amp_lessons.course.views import RulerView
from amp_lessons.course.views.widgets.ruler import ruler_picture
from amp_lessons.formats import FORMATS


def test_the_caption_counts_the_values_in_view():
    values = torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).double()
    count = int(((values >= 2.0**-9) & (values <= 2.0**9)).sum())
    view = RulerView(around=1, zoom=4)  # 288 / 16 = 18 binades: 2^-9 to 2^9
    assert view.caption.startswith("From 2⁻⁹ to 2⁹, values in view:")
    assert f"fp16 {count:,}," in view.caption


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
