import pytest

from amp_lessons.course.views.base.controls import Slider, SliderWithField, align_sliders, row, text_field


@pytest.fixture
def reported():
    return []


@pytest.fixture
def both(reported):
    def typed(text):
        reported.append(text)
        if text:
            both.follow(float(text))

    both = SliderWithField(Slider("Number", 0, 10, 5), text_field("or type", ""), reported.append, typed)
    return both


def test_the_slider_follows_what_is_typed_as_far_as_it_can_and_that_is_not_reported(both, reported):
    for typed, value in (("7.4", 7), ("1e6", 10)):
        both._field.value = typed
        assert (both._slider.value, both._field.value) == (value, typed)
    assert reported == ["7.4", "1e6"]


def test_where_the_slider_is_moved_the_field_is_emptied_and_a_learner_who_empties_it_is_reported(
    both, reported
):
    both._field.value = "7.4"
    both._slider.value = 3
    assert both._field.value == ""
    assert reported == ["7.4", 3]
    both._field.value = "7"
    both._field.value = ""
    assert reported[2:] == ["7", ""]


def test_a_row_breaks_where_the_page_is_narrow():
    controls = [text_field("a", ""), text_field("b", "")]
    assert list(row(*controls).children) == controls
    assert row(*controls).layout.flex_flow == "row wrap"


def test_sliders_of_one_view_share_the_width_of_their_labels_and_readouts():
    short, long = (
        Slider("Zoom", 0, 3, 0, words=str),
        Slider("Inner dimension", 0, 3, 0, words=lambda _: "never"),
    )
    align_sliders([row(short), long])
    assert (short.label_width, short.readout_width) == (len("Inner dimension"), len("never"))
    assert (long.label_width, long.readout_width) == (short.label_width, short.readout_width)
