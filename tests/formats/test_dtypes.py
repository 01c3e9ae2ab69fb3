import pytest
import torch

from amp_lessons.formats import FORMATS
from amp_lessons.formats.dtypes import dtype_name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float16, "fp16"),
        (torch.bfloat16, "bf16"),
        (torch.float32, "fp32"),
        (torch.float64, "fp64"),
        (torch.float8_e4m3fn, "fp8_e4m3"),
        (torch.int64, "int64"),
        (torch.bool, "bool"),
    ],
)
def test_the_course_has_one_short_name_for_a_dtype(dtype, name):
    assert dtype_name(dtype) == name


def test_a_format_and_its_dtype_have_the_same_name():
    named = {name: dtype_name(each.dtype) for name, each in FORMATS.items() if each.dtype}
    assert named == {name: name for name in named}
