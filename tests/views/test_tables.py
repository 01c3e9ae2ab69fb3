import math

import pytest
import torch

from amp_lessons.formats import FORMATS
from amp_lessons.views import Table, format_table


def test_columns_stand_below_each_other():
    text = repr(Table([{"name": "a", "size": 1}, {"name": "longer", "size": 1000}], "Two things."))
    assert text.splitlines() == ["Two things.", "name    size", "a          1", "longer  1000"]


def test_the_html_names_columns_and_rows_and_escapes():
    page = Table([{"name": "<a>", "size": 1}], "A & B")._repr_mimebundle_()["text/html"]
    assert '<th scope="col">size</th>' in page
    assert '<th scope="row">&lt;a&gt;</th><td>1</td>' in page
    assert ">A &amp; B</caption>" in page


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        Table([], "Nothing.")


@pytest.mark.parametrize(
    "name", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"]
)
def test_the_figures_of_a_format_are_those_of_finfo(name):
    (row,) = format_table([name]).rows
    info = torch.finfo(FORMATS[name].dtype)
    assert float(row["largest"]) == pytest.approx(info.max, rel=1e-4)
    assert row["smallest normal"] == f"2^{int(math.log2(info.smallest_normal))}"
    assert row["bits"] == str(info.bits) == str(sum(map(int, row["s/e/m"].split("/"))))
    has_infinity = torch.tensor(torch.inf).to(FORMATS[name].dtype).float().isinf()
    assert row["inf, nan"] == ("both" if has_infinity else "nan")


def test_all_formats_are_there():
    assert [row["format"] for row in format_table().rows] == list(FORMATS)
