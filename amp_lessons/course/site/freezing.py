"""Freezing views: every state of a view, looked at once, as scripts that a page loads when it shows the view.

What a view computes Python computes alone. A page moves between what was computed before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import anywidget
import ipywidgets
import matplotlib as mpl

from amp_lessons._base.text.words import listed
from amp_lessons.course.site.shell import as_script
from amp_lessons.course.views.base import states
from amp_lessons.course.views.base.controls import Field, Slider
from amp_lessons.course.views.base.moving import MovingPage
from amp_lessons.course.views.base.states import Axis, Positions, State
from amp_lessons.course.views.base.view import View

LONG = 100  # characters from which on a text is worth a place of its own
Frame = dict[str, State]  # what is shown, by the number of the widget


@dataclass(frozen=True)
class Frozen:
    """A view as scripts, by their file names; ``still`` says which of its controls need the notebook."""

    scripts: dict[str, str]
    still: str


def freeze(view: View, name: str) -> Frozen | None:
    """Return the states of a view as scripts; None for a view that nothing moves on a page.

    ``name.js`` brings the view and the states nearest to how it stands, another file each other choice from
    its lists.
    """
    moving = states.axes(view) if view.has_controls else []
    if not moving:
        return None
    # With a salt the same picture is the same text, and no other view's.
    with mpl.rc_context({"svg.hashsalt": name}), states.unpainted(view):
        return Frozen(dict(_scripts(view, name, moving)), still(view, moving))


def _scripts(view: View, name: str, moving: list[Axis]) -> Iterator[tuple[str, str]]:
    numbers = {widget: str(number) for number, widget in enumerate(states.widgets_of(view))}
    base = _frame(view, numbers)
    head = {
        "tree": _tree(view, numbers, view),
        "axes": [_axis(axis, numbers) for axis in moving],
        "start": [axis.position for axis in moving],
        "still": still(view, moving),
    }
    looked_at = ((at, differences(_frame(view, numbers), base)) for at in states.each_state(view, moving))
    for chosen, found in itertools.groupby(looked_at, lambda each: _chosen(each[0], moving)):
        pack = Pack()
        if head:
            pack.add("base", base)
        for at, frame in found:
            pack.add(_key(at), frame)
        file = name if head else f"{name}.{chosen}"
        yield f"{file}.js", as_script(f'(window.ampViews ??= {{}})["{file}"]', {**head, **pack.packed()})
        head = {}


def _key(positions: Positions) -> str:
    """Return how a state is called in a file: its positions on all axes."""
    return ",".join(map(str, positions))


def _chosen(positions: Positions, moving: list[Axis]) -> str:
    """Return which of the files a state is in: the positions of the lists."""
    pairs = zip(positions, moving, strict=True)
    return "-".join(str(at) for at, axis in pairs if not isinstance(axis.control, Slider))


def _frame(view: View, numbers: dict[ipywidgets.Widget, str]) -> Frame:
    """Return what each widget of a view shows now."""
    page = states.page_shown(view)
    return {
        number: page if widget is view.page and page else states.shown(widget)
        for widget, number in numbers.items()
    }


def _axis(axis: Axis, numbers: dict[ipywidgets.Widget, str]) -> dict[str, Any]:
    is_slider = isinstance(axis.control, Slider)
    return {"of": numbers[axis.control], "name": axis.name, "slider": is_slider, "size": axis.size}


def _tree(widget: ipywidgets.Widget, numbers: dict[ipywidgets.Widget, str], view: View) -> dict[str, Any]:
    """Return what kind a widget is, which class names it has, and what is inside of it."""
    return {
        "of": numbers[widget],
        "kind": MovingPage.__name__ if widget is view.page and states.page_shown(view) else _kind(widget),
        "classes": list(getattr(widget, "_dom_classes", ())),
        "inside": [_tree(each, numbers, view) for each in states.children_of(widget)],
    }


def _kind(widget: ipywidgets.Widget) -> str:
    """Name what draws a widget on a page: its own script by its class, or a function of ``views.js``."""
    if isinstance(widget, (anywidget.AnyWidget, *_DRAWN)):
        return type(widget).__name__
    return "row" if isinstance(widget, ipywidgets.HBox) else "column"


_DRAWN = (ipywidgets.HTML, ipywidgets.Dropdown, ipywidgets.Button)


def still(view: View, moving: list[Axis]) -> str:
    """Say what else there is to move in the notebook; nothing where all controls move here."""
    controls = [each.control for each in moving]
    left = [each for each in states.widgets_of(view) if isinstance(each, _CONTROLS) and each not in controls]
    return f"More in the notebook: {listed([_called(each) for each in left])}." if left else ""


def _called(control: ipywidgets.Widget) -> str:
    """Return what a reader who does not see a control would call it: one “or type …” by what it is for."""
    if isinstance(control, Field) and control.label.startswith("or "):
        return f"a field for any other number, such as {control.placeholder}"
    return f"“{getattr(control, 'description', '') or control.label}”"


_CONTROLS = (Slider, Field, ipywidgets.Dropdown, ipywidgets.Checkbox, ipywidgets.Button)


# --- frames packed


class Pack:
    """Texts and frames of one file: ``{lines, texts, frames}``.

    States of one view have most of their text in common, and each line of it is kept once.
    A long text is what its lines are joined by and their numbers, each as its step from the one before, which
    packs to half; in a frame stands ``{"#": its number}``. Of an outline the lines are its points.
    """

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._texts: dict[tuple[str | int, ...], int] = {}
        self._frames: dict[str, Any] = {}

    def add(self, name: str, frame: Any) -> None:
        """Add a frame."""
        self._frames[name] = self._packed(frame)

    def packed(self) -> dict[str, Any]:
        """Return what the page unpacks (``views.js``)."""
        return {"lines": list(self._lines), "texts": list(self._texts), "frames": self._frames}

    def _packed(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > LONG:
            return {"#": self._text(str(value))}
        if isinstance(value, Mapping):
            return {key: self._packed(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._packed(each) for each in value]
        return value

    def _text(self, text: str) -> int:
        between = "\n" if "\n" in text else "L"
        lines = [self._lines.setdefault(line, len(self._lines)) for line in text.split(between)]
        steps = (line - before for before, line in pairwise([0, *lines]))
        return self._texts.setdefault((between, *steps), len(self._texts))


def differences(frame: Frame, base: Frame) -> Frame:
    """Return what of a frame is not as in ``base``."""
    changed = {
        number: {name: value for name, value in state.items() if base[number].get(name) != value}
        for number, state in frame.items()
    }
    return {number: state for number, state in changed.items() if state}
