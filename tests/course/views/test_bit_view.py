"""The bits of a number against ``struct``; the story says what is typed and flipped."""

import struct

import pytest

from amp_lessons.course.views import BitView
from amp_lessons.course.views.widgets.bits import _WIDE, BitRow, bits_picture
from amp_lessons.formats import FORMATS
from tests.course.views.conftest import faults_for_a_phone


def half(code):
    return struct.unpack("<e", struct.pack("<H", code))[0]


@pytest.mark.parametrize("bit", [0, 9, 10, 15])
def test_each_bit_flips_and_flips_back(bit):
    view = BitView("0.1", "fp16")
    before = view.code
    assert half(before) == view.representations["fp16"].fields.value
    view.flip(bit)
    assert view.code == before ^ 1 << bit
    assert view.value == half(view.code)
    view.flip(bit)
    assert view.code == before


@pytest.mark.parametrize("name", FORMATS)
def test_each_bit_has_a_button_with_a_name_of_its_own(name):
    row = BitRow()
    row.show(FORMATS[name], 1)
    names = [bit for field in row.fields for bit in field["bits"]]
    assert len(set(names)) == FORMATS[name].bits == len(row.bits)
    assert [bit.split(",")[0] for bit in names] == [f"bit {i}" for i in reversed(range(len(names)))]
    assert row.bits == "1".zfill(len(names))
    if name == "fp16":
        assert [names[0], names[1], names[-1]] == [
            "bit 15, sign",
            "bit 14, exponent, worth 16",
            "bit 0, mantissa, worth 1/1024",
        ]


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


@pytest.mark.parametrize("typed", ["0.1", "0.09995", "0.9999", "1.0004", "0.5"])
def test_a_triangle_marks_what_was_asked_for_between_the_neighbours(typed):
    view = BitView(typed, "fp16")
    chosen, lines = view.representations["fp16"], view.picture.figure.axes[0].lines
    below, here, above = sorted(
        xs[0] for xs in (line.get_xdata() for line in lines) if len(xs) == 2 and xs[0] == xs[1]
    )
    asked = [line.get_xdata()[0] for line in lines if line.get_marker() == "v"]
    value = chosen.fields.value
    offset = float(typed) - value
    ends = chosen.format.next_down(value), chosen.format.next_up(value)
    share = [offset / abs(ends[offset > 0] - value)] if offset else []
    assert [(at - here) / (above - here) for at in asked] == pytest.approx(share, abs=1e-6)
    assert above - here == pytest.approx(here - below)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("typed", ["inf", "-inf", "nan", "0", "1e-400", "3.4e38", "1/3", "-0.3", "65520"])
def test_every_format_can_show_everything_and_for_a_phone_nothing_is_cut(name, typed):
    view = BitView(typed, name)
    assert view.picture.pixels().min() < 100
    assert view.caption
    assert list(faults_for_a_phone(view.picture.narrow)) == []
