import pytest
import torch

from amp_lessons.formats import FORMATS
from amp_lessons.views.base.style import DTYPE_COLOURS, QUIET, dtype_colour


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_colour_of_its_own(name):
    assert dtype_colour(name) == DTYPE_COLOURS[name] != QUIET
    assert list(DTYPE_COLOURS.values()).count(DTYPE_COLOURS[name]) == 1


def test_a_dtype_has_the_colour_of_its_format():
    assert dtype_colour(torch.bfloat16) == dtype_colour("bf16")
    assert dtype_colour(torch.int64) == QUIET
