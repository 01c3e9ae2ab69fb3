"""The controls that views share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import anywidget
import ipywidgets
import traitlets

T = TypeVar("T")


class Slider(anywidget.AnyWidget):
    """A slider over whole numbers with a label, a readout in words and a name for screen readers."""

    _esm = Path(__file__).with_name("slider.js")
    _css = Path(__file__).with_name("slider.css")
    label = traitlets.Unicode().tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    # The page knows what it has just set: sent back, it would only stand in the way of the picture.
    value = traitlets.Int(0).tag(sync=True, echo_update=False)
    readouts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        label: str,
        minimum: int,
        maximum: int,
        value: int,
        words: Callable[[int], str] | None = None,
    ) -> None:
        """Make a slider from ``minimum`` to ``maximum``, both included.

        ``words`` turns each position into its readout, once and for all, so that the page need not ask;
        without it the readout is the number.
        """
        readouts = [words(position) for position in range(minimum, maximum + 1)] if words else []
        super().__init__(label=label, min=minimum, max=maximum, value=value, readouts=readouts)

    @traitlets.validate("value")
    def _keep_inside(self, proposal: dict[str, Any]) -> int:
        return max(self.min, min(self.max, proposal["value"]))


class SliderWithField:
    """A slider and a field for one number: the field takes also what lies between two of the positions.

    The slider follows what is typed; where it is moved, the field is emptied.
    """

    def __init__(
        self,
        slider: Slider,
        field: ipywidgets.Text,
        moved: Callable[[int], None],
        typed: Callable[[str], None],
    ) -> None:
        """Call ``moved`` with the position that a learner moves the slider to, ``typed`` with what is typed.

        ``typed`` calls ``follow`` once it has understood.
        """
        self._slider, self._field = slider, field
        self._moved, self._typed = moved, typed
        self._quiet = False
        slider.observe(self._slider_moved, "value")
        field.observe(self._field_typed, "value")

    def follow(self, number: float) -> None:
        """Move the slider to the position nearest to ``number``; that is not reported as a move."""
        self._put(self._slider, round(number))

    def _put(self, control: ipywidgets.DOMWidget, value: int | str) -> None:
        self._quiet = True
        control.value = value
        self._quiet = False

    def _slider_moved(self, change: dict[str, Any]) -> None:
        if not self._quiet:
            self._put(self._field, "")
            self._moved(change["new"])

    def _field_typed(self, change: dict[str, Any]) -> None:
        if not self._quiet:
            self._typed(change["new"])


class ControlValue(Generic[T]):
    """The value of one of a view's controls, as an attribute of the view.

    Reading it asks the control. Setting it does what choosing or typing it does: the view redraws.
    """

    def __init__(self, control: str, doc: str) -> None:
        """Stand for the value of the view's attribute ``control``; ``doc`` says what it means."""
        self._control = control
        self.__doc__ = doc

    @overload
    def __get__(self, view: None, owner: type) -> ControlValue[T]: ...
    @overload
    def __get__(self, view: ipywidgets.Widget, owner: type) -> T: ...
    def __get__(self, view: ipywidgets.Widget | None, owner: type) -> ControlValue[T] | T:
        return self if view is None else getattr(view, self._control).value

    def __set__(self, view: ipywidgets.Widget, value: T) -> None:
        control = getattr(view, self._control)
        control.value = str(value) if isinstance(control, ipywidgets.Text) else value


def text_field(label: str, value: str, placeholder: str = "") -> ipywidgets.Text:
    """Return a field for typing, which reports when the learner presses Enter or leaves it."""
    return ipywidgets.Text(
        value=value,
        description=label,
        placeholder=placeholder,
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "230px"},
    )


def dropdown(label: str, options: list[Any], value: Any) -> ipywidgets.Dropdown:
    """Return a labelled dropdown, as wide as its label and options need."""
    return ipywidgets.Dropdown(
        options=options,
        value=value,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )


def button(text: str, hint: str = "") -> ipywidgets.Button:
    """Return a push button that is as wide as its text."""
    return ipywidgets.Button(description=text, tooltip=hint, layout={"width": "auto"})


def row(*controls: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return controls side by side, on several lines where the page is narrow."""
    return ipywidgets.HBox(controls, layout={"flex_flow": "row wrap"})
