import base64
import io

import pytest
from PIL import Image

from amp_lessons.course.views import Play, curves


def squares(width):
    if width == 7:
        raise ValueError("a width of 7 does not divide")
    return {
        "cost": {"fp32": width**2, "bf16": width**2 / 2},
        "bytes": {"fp32": 4.0 * width, "bf16": 2.0 * width},
    }


@pytest.fixture
def view():
    return Play(squares, "width", [2, 4, 7], start=4)


def shown(view):
    return Image.open(io.BytesIO(base64.b64decode(view._repr_mimebundle_()["image/png"])))


def test_the_slider_shows_what_the_function_returned_when_the_view_was_made():
    called = []
    view = Play(lambda width: called.append(width) or squares(width), "width", [2, 4], start=4)
    assert view.caption == "width 4. cost: fp32 16, bf16 8 (50 %); bytes: fp32 16, bf16 8 (50 %)."
    view.value = 2
    assert view.caption == "width 2. cost: fp32 4, bf16 2 (50 %); bytes: fp32 8, bf16 4 (50 %)."
    assert called == [2, 4]
    measured = Play(squares, "width", [2, 4], start=4, measured=True)
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


def test_curves_are_a_picture_with_a_caption():
    still = curves({"fp32": [3.0, 2.0], "fp16": [3.0, 2.5]}, "fp32 ends lower.", log=True)
    bundle = still._repr_mimebundle_()
    assert bundle["text/plain"] == "[measured] fp32 ends lower."
    assert shown(still).width == 1080
    assert "Curves of loss over training step: fp32, fp16." in still.children[-1].value


def test_steps_are_numbered_in_whole_numbers():
    (axes,) = curves({"fp32": [3.0, 2.0, 1.5, 1.0]}, "four epochs").picture.figure.axes
    assert all(tick == round(tick) for tick in axes.get_xticks())
