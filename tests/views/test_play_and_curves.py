import base64
import io

import pytest
from PIL import Image

from amp_lessons.views import Play, curves


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


def test_the_function_is_called_with_what_the_slider_reaches(view):
    assert view.caption == "width 4. cost: fp32 16, bf16 8; bytes: fp32 16, bf16 8."
    view.value = 2
    assert view.caption == "width 2. cost: fp32 4, bf16 2; bytes: fp32 8, bf16 4."


def test_an_error_of_the_function_is_said_and_the_view_lives_on(view):
    view.value = 7
    assert view.caption == "a width of 7 does not divide"
    view.value = 4
    assert view.caption.startswith("width 4.")


def test_the_picture_is_faded_and_says_so_while_the_function_runs():
    seen = []

    def slow(width):
        seen.append((view.caption, "opacity" in view.page_html()) if seen else None)
        return squares(width)

    view = Play(slow, "width", [2, 4], start=4)
    view.value = 2
    assert seen[1] == ("width 2: working …", True)
    assert "opacity" not in view.page_html()


def test_axes_only_grow(view):
    def ends():
        return [axes.get_xlim()[1] for axes in view.picture.figure.axes]

    before = ends()
    view.value = 2
    assert ends() == before


def test_a_value_off_the_list_is_refused_in_words(view):
    with pytest.raises(ValueError, match="one of 2, 4, 7"):
        view.value = 3


def test_a_longer_bar_is_a_larger_number(view):
    before = shown(view)
    view.value = 2
    assert shown(view).tobytes() != before.tobytes()


def test_curves_are_a_picture_with_a_caption():
    still = curves({"fp32": [3.0, 2.0], "fp16": [3.0, 2.5]}, "fp32 ends lower.", log=True)
    bundle = still._repr_mimebundle_()
    assert bundle["text/plain"] == "[measured] fp32 ends lower."
    assert shown(still).width == 1080
    assert "Curves of loss over training step: fp32, fp16." in still.children[-1].value


def test_steps_are_numbered_in_whole_numbers():
    (axes,) = curves({"fp32": [3.0, 2.0, 1.5, 1.0]}, "four epochs").picture.figure.axes
    assert all(tick == round(tick) for tick in axes.get_xticks())
