"""The table of formats against ``torch.finfo``."""

import math

import pytest
import torch

from amp_lessons.course.views import format_table
from amp_lessons.formats import FORMATS
from tests.raised import as_float, lowered


@pytest.mark.parametrize("row", format_table().records, ids=lambda row: row["format"])
def test_the_figures_of_a_format_are_those_of_its_values_and_of_finfo(row):
    each = FORMATS[row["format"]]
    assert row["used for"]
    if each.bits <= 16:
        positive = [value for value in map(each.decode, range(2**each.bits)) if value > 0]
        assert lowered(row["smallest"]) == f"2^{int(math.log2(min(positive)))}"
    if each.name in ("tf32", "fp4_e2m1", "e8m0"):
        return
    info = torch.finfo(each.dtype)
    assert as_float(row["largest"]) == pytest.approx(info.max, rel=1e-4)
    assert lowered(row["smallest normal"]) == f"2^{int(math.log2(info.smallest_normal))}"
    assert row["bits"] == str(info.bits) == str(sum(map(int, row["s/e/m"].split("/"))))
    has_infinity = torch.tensor(torch.inf).to(each.dtype).float().isinf()
    assert row["inf, nan"] == ("both" if has_infinity else "nan")


def test_all_formats_are_there():
    assert [row["format"] for row in format_table().records] == list(FORMATS)
