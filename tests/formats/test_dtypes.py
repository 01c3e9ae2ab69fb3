import pytest
import torch

from amp_lessons.formats import FORMATS
from amp_lessons.formats.dtypes import dtype_name


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float16, "fp16"), (torch.float64, "fp64"), (torch.int64, "int64")]
)
def test_the_course_has_one_short_name_for_a_dtype(dtype, name):
    assert dtype_name(dtype) == name


def test_a_format_and_its_dtype_have_the_same_name():
    named = {name: dtype_name(each.dtype) for name, each in FORMATS.items() if each.dtype}
    assert named == {name: name for name in named}
