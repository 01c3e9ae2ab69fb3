"""A tour goes one stop at a time, by doing what it asks or by its buttons, and leaves no trace."""

from __future__ import annotations

import ipywidgets
import pytest

from amp_lessons import views
from amp_lessons.views.widgets.play import HERE, Stop, Tour


@pytest.fixture
def slider():
    return ipywidgets.IntSlider(5, 0, 10)


@pytest.fixture
def box(slider):
    return ipywidgets.HBox([slider])


@pytest.fixture
def picture():
    return ipywidgets.HTML()


@pytest.fixture
def tour(slider, box, picture):
    stops = [
        Stop(box, "Move it to 0.", slider, done=lambda value: value == 0),
        Stop(picture, "Look."),
        Stop(box, "Move it back.", slider, done=lambda value: value > 0),
    ]
    return Tour(stops, "That was all.")


def press(tour, text):
    (found,) = [each for each in tour.children[1].children if each.description == text]
    assert found.layout.display != "none"
    found.click()


def here(*widgets):
    return [HERE in widget._dom_classes for widget in widgets]


def test_what_is_asked_for_leads_to_the_next_stop(tour, slider, box, picture):
    assert tour.sentence == "1 of 3. Move it to 0."
    assert here(box, picture) == [True, False]
    slider.value = 3
    assert tour.sentence.startswith("1 of 3")
    slider.value = 0
    assert tour.sentence == "2 of 3. Look."
    assert here(box, picture) == [False, True]
    press(tour, "Next")
    slider.value = 1
    assert tour.sentence == "That was all."
    assert here(box, picture) == [False, False]


def test_next_goes_on_without_doing_it(tour):
    press(tour, "Next")
    press(tour, "Next")
    assert tour.sentence == "3 of 3. Move it back."


def test_the_tour_can_be_left_and_taken_again(tour, slider):
    press(tour, "End the tour")
    assert tour.sentence == "That was all."
    slider.value = 0
    assert tour.sentence == "That was all."
    press(tour, "Show me around again")
    assert tour.sentence == "1 of 3. Move it to 0."
    press(tour, "End the tour")


def test_every_sentence_is_announced(tour):
    assert 'aria-live="polite"' in tour.children[0].value


def test_a_view_to_play_with_has_a_tour_where_it_is_asked_for():
    def cost(size):
        return {"ms": {"fp32": size, "bf16": size / 2}}

    view = views.Play(cost, "size", [1, 2, 4], start=4, tour=True)
    tour = view.children[0]
    assert "Drag it to 1," in tour.sentence
    view.value = 1
    assert "a bar for each precision" in tour.sentence
    press(tour, "Next")
    view.value = 2
    assert tour.sentence.startswith("This is how every view works")
    assert not isinstance(views.Play(cost, "size", [1, 2], start=1).children[0], Tour)
