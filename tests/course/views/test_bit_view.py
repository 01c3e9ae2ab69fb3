import math
import struct

import pytest
import torch

from amp_lessons.course.views import BitView
from amp_lessons.course.views.widgets.bits import _WIDE, BitRow, bits_picture, describe_error
from amp_lessons.formats import FORMATS, represent
from tests.course.views.conftest import faults_for_a_phone


def text_of(view):
    return view._repr_mimebundle_()["text/plain"]


def lines_of(view):
    """What the view says of each format, by name."""
    return dict(line.split(": ", 1) for line in text_of(view).splitlines()[1:])


def half(code):
    return struct.unpack("<e", struct.pack("<H", code))[0]


@pytest.mark.few(4)
@pytest.mark.parametrize("bit", range(16))
def test_each_bit_flips_and_flips_back(bit):
    view = BitView("0.1", "fp16")
    before = view.code
    assert before == struct.unpack("<H", struct.pack("<e", 0.1))[0]
    view.flip(bit)
    assert view.code == before ^ 1 << bit
    assert view.value == half(view.code)
    view.flip(bit)
    assert view.code == before


def test_every_format_gets_the_number_that_the_bits_mean():
    view = BitView("0", "fp32")
    view.flip(22), view.flip(29), view.flip(28)
    for name in ("fp16", "bf16"):
        expected = torch.tensor(float(view.value)).to(FORMATS[name].dtype).item()
        assert view.representations[name].fields.value == expected


def test_flipping_to_nan_keeps_the_code():
    view = BitView("inf", "fp16")
    view.flip(0)
    assert view.code == 0x7C01
    assert "fp16 0 11111 0000000001 is NaN" in view.caption
    assert view.representations["fp16"].fields.bits == 0x7C01
    assert lines_of(view)["bf16"] == "nan, nan"


def test_another_format_keeps_the_exact_number():
    view = BitView("1e400", "fp16")
    view.format = "fp32"
    assert "10⁴⁰⁰ is beyond fp32" in view.caption
    view.type("0.1")
    view.format = "bf16"
    view.format = "fp32"
    assert view.code == struct.unpack("<I", struct.pack("<f", 0.1))[0]


def test_a_pattern_typed_in_one_format_is_a_number_in_the_next():
    view = BitView("0x3c01", "fp16")
    view.format = "fp32"
    assert view.value == half(0x3C01)
    assert view._field.value == "1.0009765625"


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (math.nan, "fp16", "nan"),
        (math.nan, "fp4_e2m1", "has no nan"),
        (0.0, "e8m0", "has no zero"),
        (-2.0, "e8m0", "has no sign"),
        (3.0, "e8m0", "33 %"),
        (2.0**-30, "fp16", "becomes zero"),
        (1.0, "tf32", "exact"),
    ],
)
def test_an_error_is_named(value, name, words):
    assert describe_error(represent(value, FORMATS[name])) == words


@pytest.mark.parametrize("name", FORMATS)
def test_each_bit_has_a_button_with_a_name_of_its_own(name):
    row = BitRow()
    row.show(FORMATS[name], 1)
    names = [bit for field in row.fields for bit in field["bits"]]
    assert len(set(names)) == FORMATS[name].bits == len(row.bits)
    assert [bit.split(",")[0] for bit in names] == [f"bit {i}" for i in reversed(range(len(names)))]
    assert row.bits == "1".zfill(len(names))


def test_the_names_say_what_a_bit_is_worth():
    row = BitRow()
    row.show(FORMATS["fp16"], 0)
    assert [field["name"] for field in row.fields] == ["sign", "exponent", "mantissa"]
    assert row.fields[0]["bits"] == ["bit 15, sign"]
    assert row.fields[1]["bits"][0] == "bit 14, exponent, worth 16"
    assert row.fields[2]["bits"][-1] == "bit 0, mantissa, worth 1/1024"


def test_the_picture_has_a_box_per_bit_and_mantissas_that_begin_below_each_other():
    view = BitView("0.1", "fp16")
    found = list(view.representations.values())
    boxes, zeros, ones = bits_picture(found, found[2], view.value).figure.axes[0].collections
    assert len(boxes.get_paths()) == sum(each.format.bits for each in found)
    assert len(ones.get_offsets()) == sum(each.fields.bits.bit_count() for each in found)
    assert len(ones.get_offsets()) + len(zeros.get_offsets()) == len(boxes.get_paths())
    left_edges = [path.vertices[:, 0].min() for path in boxes.get_paths()]
    mantissas = [each for each in found if each.format.mantissa_bits]
    assert sum(abs(edge - _WIDE.border) < 1e-9 for edge in left_edges) == len(mantissas)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("typed", ["inf", "-inf", "nan", "0", "1e-400", "3.4e38", "1/3"])
def test_every_format_can_show_everything(name, typed):
    view = BitView(typed, name)
    assert view.picture.pixels().min() < 100
    assert view.caption


@pytest.mark.parametrize("typed", ["0.1", "0.09995", "0.9999", "1.0004"])
def test_a_triangle_marks_what_was_asked_for_between_the_neighbours(typed):
    view = BitView(typed, "fp16")
    chosen = view.representations["fp16"]
    lines = view.picture.figure.axes[0].lines
    below, here, above = sorted(
        line.get_xdata()[0]
        for line in lines
        if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    )
    (asked,) = (line.get_xdata()[0] for line in lines if line.get_marker() == "v")
    value = chosen.fields.value
    ends = chosen.format.next_down(value), chosen.format.next_up(value)
    share = (float(typed) - value) / abs(ends[float(typed) > value] - value)
    assert (asked - here) / (above - here) == pytest.approx(share, abs=1e-6)
    assert above - here == pytest.approx(here - below)


def test_an_exact_number_has_no_triangle():
    lines = BitView("0.5", "fp16").picture.figure.axes[0].lines
    assert all(line.get_marker() != "v" for line in lines)


@pytest.mark.parametrize("format", ["fp32", "fp16", "bf16", "fp8_e4m3fnuz"])
@pytest.mark.parametrize("typed", ["-0.3", "65520", "-1e-7", "nan"])
def test_for_a_phone_it_is_drawn_narrow_with_nothing_cut(typed, format):
    assert list(faults_for_a_phone(BitView(typed, format).picture.narrow)) == []
