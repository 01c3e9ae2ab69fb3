"""A slider around a function; its story says how its bars are drawn."""

from amp_lessons.course.views import Play
from tests.course.views.conftest import faults_for_a_phone


def test_the_slider_shows_what_the_function_returned_when_the_view_was_made():
    called = []

    def moved(update):
        called.append(update)
        return {"moved": {"fp32": update, "fp16": 4 * update if update > 1 else 0.0}}

    view = Play(moved, "update", [0.5, 8], start=0.5, measured=True)
    assert view.picture.figure.axes[0].get_xlim()[1] == 1.4, "room for what stands at a bar's end"
    view.value = 8
    assert view.picture.figure.axes[0].get_xlim()[1] == 5.6
    assert called == [0.5, 8]
    assert "[measured] update 8. moved" in view.children[-1].value, "on the page, too"


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
