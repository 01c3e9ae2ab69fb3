"""The states of a view: which controls move on a page, and what is looked at."""

from __future__ import annotations

import inspect
import re

import pytest

from amp_lessons import views
from amp_lessons.course.views.base import states
from amp_lessons.course.views.base.controls import Slider, dropdown, text_field
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import curves_picture


class Product(View):
    """A slider whose end another control decides, and what they make together."""

    def __init__(self):
        self._factor = Slider("factor", 2, 5, 3)
        self._most = dropdown("most", [4, 6], 6)
        self._typed = text_field("or type", "")
        super().__init__([self._factor, self._most, self._typed], alt="A product.")
        self._most.observe(self._refresh, "value")
        self._factor.observe(self._refresh, "value")
        self.drawn = 0
        self._refresh()

    def _refresh(self, _change=None):
        self._factor.max = self._most.value
        self.drawn += 1
        picture = curves_picture({"it": [1.0, float(self._factor.value)]}, "x", "y")
        self.show(picture, f"{self._factor.value} times {self._most.value}")


class OfOne(Product):
    on_pages = ("_most",)


def names(view):
    return [axis.name for axis in states.axes(view)]


@pytest.mark.parametrize(
    ("view", "most_states", "moving"),
    [
        (Product, 500, ["factor", "most"]),
        (OfOne, 500, ["most"]),
        (Product, 6, ["factor"]),
        (Product, 4, ["most"]),
    ],
)
def test_sliders_and_lists_move_that_a_view_names_and_that_make_few_states(
    view, most_states, moving, monkeypatch
):
    monkeypatch.setattr(states, "MOST_STATES", most_states)
    assert names(view()) == moving


def test_each_state_is_looked_at_once_within_its_ends_and_then_the_view_is_as_it_was():
    view = Product()
    before = view.caption
    found = [(at, view.caption) for at in states.each_state(view, states.axes(view))]
    captions = [f"{factor} times {most}" for most in (6, 4) for factor in range(2, most + 1)]
    assert [caption for _, caption in found] == captions
    assert [at for at, _ in found] == [(i, 1) for i in range(5)] + [(i, 0) for i in range(3)]
    assert (view.caption, view._factor.value, view._most.value) == (before, 3, 6)


def test_nothing_is_a_choice_like_others():
    view = Product()
    view._most.options = [("a number", 6), ("nothing", None)]
    axis = states.Axis(view._most)
    view._most.unobserve_all()
    for position in (1, 0, 1):
        axis.move(position)
        assert (axis.position, states.shown(view._most)["index"]) == (position, position)


def test_what_a_page_shows_is_the_picture_as_a_drawing_with_its_caption():
    shown = states.page_shown(Product())
    assert shown["drawing"].startswith("<svg")
    assert shown["caption"] == "3 times 6"
    assert shown["alt"] == "A product. 3 times 6"


def test_nothing_is_painted_that_nobody_looks_at():
    view = Product()
    before = view.page.value
    with states.unpainted(view):
        view._factor.value = 5
        assert view.page.value == before
    assert "5 times 6" in view.page.value


VIEWS = [
    each
    for each in map(views.__getattr__, views.__all__)
    if isinstance(each, type) and issubclass(each, View)
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_what_a_view_says_of_its_states_is_there(view):
    made = re.findall(r"self\.(_\w+)(?:, self\.\w+)* = ", "".join(map(inspect.getsource, view.__mro__[:-1])))
    assert set(view.on_pages or ()) <= set(made)
    assert bool(view.why_still) == (view.on_pages == ()), "a view that stands still says why"
