import pytest

from amp_lessons.course.views import Play
from tests.course.views.conftest import faults_for_a_phone


def test_the_slider_shows_what_the_function_returned_when_the_view_was_made():
    called = []
    view = Play(lambda width: called.append(width) or {"cost": {"fp32": width}}, "width", [2, 4], start=4)
    view.value = 2
    assert called == [2, 4]
    measured = Play(lambda width: {"cost": {"fp32": width}}, "width", [2, 4], start=4, measured=True)
    assert "[measured] width 4. cost" in measured.children[-1].value, "on the page, too"


def test_bars_are_as_long_as_their_number_is_beside_the_first_and_leave_room_for_it():
    def moved(update):
        return {"moved": {"fp32": update, "fp16": 4 * update if update > 1 else 0.0}}

    def bars_and_end(view):
        (axes,) = view.picture.figure.axes
        return [bar.get_width() for bar in axes.patches], axes.get_xlim()[1]

    view = Play(moved, "update", [0.5, 8], start=0.5)
    assert bars_and_end(view) == ([1.0, 0.0], pytest.approx(1.4))
    view.value = 8
    assert bars_and_end(view) == ([1.0, 4.0], pytest.approx(5.6))


def test_for_a_phone_the_panels_stand_one_below_the_other_with_nothing_cut():
    def cost(size):
        return {
            "ms per training step": {"fp32": 31, "bf16": size},
            "KiB saved for backward": {"fp32": 4400, "bf16": 2700},
        }

    for size in (3, 510):
        narrow = Play(cost, "batch size", [3, 510], start=size).picture.narrow
        assert list(faults_for_a_phone(narrow)) == []
        above, below = (axes.bbox for axes in narrow.figure.axes)
        assert above.y0 > below.y1
