import math

import pytest
import torch

from amp_lessons.course.views import format_table
from amp_lessons.formats import FORMATS
from tests.raised import as_float, lowered


@pytest.mark.parametrize(
    "name", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"]
)
def test_the_figures_of_a_format_are_those_of_finfo(name):
    (row,) = format_table([name]).records
    info = torch.finfo(FORMATS[name].dtype)
    assert as_float(row["largest"]) == pytest.approx(info.max, rel=1e-4)
    assert lowered(row["smallest normal"]) == f"2^{int(math.log2(info.smallest_normal))}"
    assert row["bits"] == str(info.bits) == str(sum(map(int, row["s/e/m"].split("/"))))
    has_infinity = torch.tensor(torch.inf).to(FORMATS[name].dtype).float().isinf()
    assert row["inf, nan"] == ("both" if has_infinity else "nan")


def test_all_formats_are_there():
    rows = format_table().records
    assert [row["format"] for row in rows] == list(FORMATS)
    assert all(row["used for"] for row in rows)


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.bits <= 16])
def test_smallest_is_the_smallest_positive_value_of_all(name):
    each = FORMATS[name]
    positive = [value for value in map(each.decode, range(2**each.bits)) if value > 0]
    (row,) = format_table([name]).records
    assert lowered(row["smallest"]) == f"2^{int(math.log2(min(positive)))}"
