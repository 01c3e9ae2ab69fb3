"""What the states of a view are: what its controls can be set to, and what the page shows at each.

A view whose controls have finitely many values can be shown where no kernel runs: each of its states is
looked at beforehand. Which controls those are, a view says by ``on_pages``; that they come to no more than
``MOST_STATES`` is seen to here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ipywidgets

from amp_lessons._base.drawing.picture import CAPTION_STYLE, SCROLLING_BOX
from amp_lessons._base.drawing.style import PAPER_STYLE
from amp_lessons.course.views.base.controls import Slider
from amp_lessons.course.views.base.moving import NO_GOAL, MovingPage, svg
from amp_lessons.course.views.base.shown import Arrival
from amp_lessons.course.views.base.view import View

MOST_STATES = 500

State = dict[str, Any]  # what of a widget reaches the page, by the name of the trait
Positions = tuple[int, ...]  # of the axes, each from 0


@dataclass(frozen=True)
class Axis:
    """A control with finitely many values: a slider, or a list to choose from."""

    control: Slider | ipywidgets.Dropdown

    @property
    def name(self) -> str:
        """What stands before the control."""
        return self.control.label if isinstance(self.control, Slider) else self.control.description

    @property
    def size(self) -> int:
        """How many values it has now: what is chosen elsewhere may change that."""
        if isinstance(self.control, Slider):
            return self.control.max - self.control.min + 1
        return len(self.control.options)

    @property
    def position(self) -> int:
        """Which of its values it has, from 0."""
        if isinstance(self.control, Slider):
            return self.control.value - self.control.min
        index = (
            self.control.index
        )  # ipywidgets takes the value None for no choice at all, also where it is one
        return self.control._options_values.index(None) if index is None else index

    def move(self, position: int) -> None:
        """Give it that one of its values, or the last; ValueError if it does not stay there."""
        position = min(position, self.size - 1)
        if isinstance(self.control, Slider):
            self.control.value = self.control.min + position
        else:
            self.control.index = position
        if self.position != position:
            raise ValueError(f"{self.name} does not stay at its value number {position}")


def widgets_of(view: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """List what a view is made of, itself first, as a page shows it."""
    return [view, *(each for child in children_of(view) for each in widgets_of(child))]


def children_of(widget: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """List what is shown inside of a widget on a page."""
    return [each for each in getattr(widget, "children", ()) if not isinstance(each, Arrival)]


def axes(view: View) -> list[Axis]:
    """Return the controls that move on a page, in the order in which they stand there.

    They are those that the view names, or all sliders and lists, sliders first; one that would make more than
    ``MOST_STATES`` of the product is left out, and the next one is tried.
    """
    controls = [each for each in widgets_of(view) if isinstance(each, (Slider, ipywidgets.Dropdown))]
    wanted = sorted(controls, key=lambda each: not isinstance(each, Slider))
    if view.on_pages is not None:
        wanted = [getattr(view, name) for name in view.on_pages]
    moving, states = set(), 1
    for axis in map(Axis, wanted):
        if axis.size > 1 and states * axis.size <= MOST_STATES:
            moving.add(axis.control)
            states *= axis.size
    return [Axis(control) for control in controls if control in moving]


def each_state(view: View, moving: list[Axis]) -> Iterator[Positions]:
    """Set a view to each of its states in turn, and yield its position on each of the ``moving`` axes.

    Lists change outermost, from where the sliders stood at first: what they draw anew is then drawn as for
    somebody who changes nothing else. At the end all is as it was.
    """
    inner = [axis for axis in moving if isinstance(axis.control, Slider)]
    outer = [axis for axis in moving if axis not in inner]
    at_first = [axis.position for axis in moving]
    for chosen in itertools.product(*map(_own_first, outer)):
        _put(inner, (at for axis, at in zip(moving, at_first, strict=True) if axis in inner))
        _put(outer, chosen)
        ends = (range(axis.size) for axis in inner)  # which the lists have made
        for positions in itertools.product(*ends):
            _put(inner, positions)
            yield tuple(axis.position for axis in moving)
    _put(moving, at_first)


@contextmanager
def unpainted(view: View) -> Iterator[None]:
    """Have a view draw inside the block what pages show: for phones, too, and no PNG nobody would look at."""
    moving = view.page if isinstance(view.page, MovingPage) else None
    if moving:
        moving.for_phones = True
        view.turn_page()
    elif page_shown(view):
        view.turn_page = lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        view.__dict__.pop("turn_page", None)
        if moving:
            moving.for_phones = False
        view.turn_page()


def _own_first(axis: Axis) -> list[int]:
    """Return the positions of a list, that which it has before the others."""
    return sorted(range(axis.size), key=lambda position: position != axis.position)


def _put(moved: Iterable[Axis], positions: Iterable[int]) -> None:
    for axis, position in zip(moved, positions, strict=True):
        axis.move(position)


# What is the same for all widgets, or is nothing to a page that draws them by itself.
_NOT_SHOWN = {"layout", "style", "tabbable", "tooltip", "comm", "children", "box_style", "keys"}
_OF_LISTS = ("description", "_options_labels", "disabled")


def shown(widget: ipywidgets.Widget) -> State:
    """Return what of a widget reaches the page."""
    is_list = isinstance(widget, ipywidgets.Dropdown)
    own = [name for name in widget.keys if not name.startswith("_") and name not in _NOT_SHOWN]
    state = {name: getattr(widget, name) for name in (_OF_LISTS if is_list else own)}
    index = {"index": Axis(widget).position} if is_list else {}
    display = {"display": widget.layout.display or ""} if hasattr(widget, "layout") else {}
    return state | index | display


def page_shown(view: View) -> State | None:
    """Return picture and caption of a view as ``moving.js`` draws them; None where it has another page."""
    if type(view).page_html is not View.page_html or view.picture is None:
        return None
    outlines = getattr(view.page, "outlines", {})  # only outlines move: the drawing stays
    return {
        "drawing": getattr(view.page, "drawing", "") or svg(view.picture),
        "outlines": outlines,
        "caption": view.caption,
        "in_short": view.in_short,
        "goal": list(getattr(view, "goal", NO_GOAL)),
        "alt": view.alt,
        "width": view.picture.size[0],
        "narrowest": view.picture.narrowest,
        "box": str(PAPER_STYLE + SCROLLING_BOX),
        "caption_style": CAPTION_STYLE,
    }
