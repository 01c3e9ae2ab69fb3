"""The controls that views share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil, floor
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import anywidget
import ipywidgets
import traitlets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE

T = TypeVar("T")
_AS_WIDE_AS_THE_PAGE = "calc(100% - 4px)"  # a widget has a margin of 2 px on each side
_STYLE = Path(__file__).with_name("controls.css")


class Slider(anywidget.AnyWidget):
    """A slider over whole numbers with a label, a readout in words and a name for screen readers."""

    _esm = Path(__file__).with_name("slider.js")
    _css = _STYLE
    label = traitlets.Unicode().tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    # The page knows what it has just set: sent back, it would only stand in the way of the picture.
    value = traitlets.Int(0).tag(sync=True, echo_update=False)
    readouts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    # What stands in place of a readout, for a number that no position is; a move takes it away.
    beyond = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    # How much room label and readout take, in characters: those of one view share it.
    label_width = traitlets.Int(0).tag(sync=True)
    readout_width = traitlets.Int(0).tag(sync=True)

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

    @property
    def readout(self) -> str:
        """What the page shows beside the slider, at the position that it has."""
        return self._readout_at(self.value)

    def aside(self, number: float) -> str:
        """Say where ``number`` lies that no position is; "" of one that is a position."""
        if not self.min <= number <= self.max:
            low = number < self.min
            return f"{'below' if low else 'above'} {self._readout_at(self.min if low else self.max)}"
        between = (self._readout_at(each).partition(" =")[0] for each in (floor(number), ceil(number)))
        return "" if number == round(number) else "between {} and {}".format(*between)

    def _readout_at(self, position: int) -> str:
        return self.readouts[position - self.min] if self.readouts else str(position)

    @traitlets.validate("value")
    def _keep_inside(self, proposal: dict[str, Any]) -> int:
        return max(self.min, min(self.max, proposal["value"]))


def align_sliders(controls: Iterable[ipywidgets.Widget]) -> None:
    """Align the sliders among ``controls``, and in their rows: labels and readouts get one width each."""
    sliders = list(_sliders(controls))
    labels = max((len(each.label) for each in sliders), default=0)
    readouts = max((len(words) for each in sliders for words in each.readouts), default=0)
    for each in sliders:
        each.label_width, each.readout_width = labels, readouts


def _sliders(controls: Iterable[ipywidgets.Widget]) -> Iterator[Slider]:
    for each in controls:
        if isinstance(each, Slider):
            yield each
        yield from _sliders(getattr(each, "children", ()))


class Field(anywidget.AnyWidget):
    """A field to type in, with a label; it reports when the learner presses Enter or leaves it.

    ``error`` says what is wrong with what was typed: it stands below the field, which is marked, until it is
    emptied again.
    """

    _esm = Path(__file__).with_name("field.js")
    _css = _STYLE
    label = traitlets.Unicode().tag(sync=True)
    # The page knows what was typed there: sent back, it would overwrite what is typed meanwhile.
    value = traitlets.Unicode().tag(sync=True, echo_update=False)
    placeholder = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)
    width = traitlets.Unicode("230px").tag(sync=True)


class SliderWithField:
    """A slider and a field for one number: the field takes also what lies between two of the positions.

    The slider follows what is typed; where it is moved, the field is emptied.
    """

    def __init__(
        self,
        slider: Slider,
        field: Field,
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
        """Move the slider to the position nearest to ``number``; that is not reported as a move.

        Beyond an end and between two positions its readout says so: none is what was typed.
        """
        self._put(self._slider, round(number))
        self._slider.beyond = self._slider.aside(number)

    def _put(self, control: Slider | Field, value: int | str) -> None:
        self._quiet = True
        control.value = value
        self._quiet = False

    def _slider_moved(self, change: dict[str, Any]) -> None:
        if not self._quiet:
            self._put(self._field, "")
            self._field.error = ""
            self._slider.beyond = ""
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
        control.value = str(value) if isinstance(control, Field) else value


def text_field(label: str, value: str, placeholder: str = "", width: str = "230px") -> Field:
    """Return a field for typing; label and field together are as wide as ``width``."""
    return Field(label=label, value=value, placeholder=placeholder, width=width)


def dropdown(label: str, options: list[Any], value: Any) -> ipywidgets.Dropdown:
    """Return a labelled dropdown, as wide as its label and options need."""
    return ipywidgets.Dropdown(
        options=options,
        value=value,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "auto", "max_width": _AS_WIDE_AS_THE_PAGE},
    )


def button(text: str, hint: str, pressed: Callable[[], object]) -> ipywidgets.Button:
    """Return a push button that is as wide as its text, and calls ``pressed``."""
    layout = {"width": "auto", "max_width": _AS_WIDE_AS_THE_PAGE}
    made = ipywidgets.Button(description=text, tooltip=hint, layout=layout)
    made.on_click(lambda _: pressed())
    return made


def checkbox(words: str, value: bool = False) -> ipywidgets.Checkbox:
    """Return a box to tick that is as wide as its words."""
    return ipywidgets.Checkbox(description=words, value=value, indent=False, layout={"width": "auto"})


def row(*controls: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return controls side by side, on several lines where the page is narrow."""
    return ipywidgets.HBox(controls, layout={"flex_flow": "row wrap"})


class AreYouSure(ipywidgets.VBox):
    """A question before what cannot be taken back, with a button for either answer; hidden at first."""

    def __init__(self, question: str, yes: str, no: str, confirmed: Callable[[], None]) -> None:
        """Call ``confirmed`` if the answer is ``yes``; both are what stands on the buttons."""
        asked = ipywidgets.HTML(
            Markup('<p role="alert" style="margin:0;{}">{}</p>').format(CAPTION_STYLE, question)
        )
        self._confirmed = confirmed
        self._asked_by: ipywidgets.Widget | None = None
        self._no = button(no, "", lambda: self._answer(False))
        agree = button(yes, "", lambda: self._answer(True))
        super().__init__([asked, row(agree, self._no)], layout={"display": "none"})

    def ask(self, asked_by: ipywidgets.Widget) -> None:
        """Ask, and move the keyboard to what changes nothing; the answer brings it back to ``asked_by``."""
        self._asked_by = asked_by
        self.layout.display = ""
        focus(self._no)

    def hide(self) -> None:
        """Put the question away."""
        self.layout.display = "none"

    def _answer(self, yes: bool) -> None:
        self.hide()
        focus(self._asked_by)
        if yes:
            self._confirmed()


class Countdown(anywidget.AnyWidget):
    """A clock that shows how much time is left while it runs, and nothing while it does not.

    The page counts, not the kernel, which may be busy with a learner's cell. Screen readers hear of each
    minute, politely, and not of each second; the clock takes no focus.
    """

    _esm = Path(__file__).with_name("countdown.js")
    _css = Path(__file__).with_name("countdown.css")
    # ``set`` numbers the times that it was set: the same rest may be meant anew.
    state: Any = traitlets.Dict({"left_s": 0.0, "running": False, "set": 0}).tag(sync=True)

    over = traitlets.Unicode().tag(sync=True)

    def __init__(self, left_s: Callable[[], float], over: str) -> None:
        """Show nothing yet; ``left_s`` says how many seconds are left, once it runs.

        ``over`` is what it says when there are none.
        """
        super().__init__(over=over)
        self._left_s = left_s
        self.on_msg(lambda *_: self.correct())  # a page that is opened later asks what is left by now

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state["running"]

    def start(self) -> None:
        """Run down from what is left now."""
        self.state = {"left_s": self._left_s(), "running": True, "set": self.state["set"] + 1}

    def stop(self) -> None:
        """Show nothing any more."""
        self.state = {"left_s": 0.0, "running": False, "set": self.state["set"] + 1}

    def correct(self) -> None:
        """Put the clock right, if it runs."""
        if self.running:
            self.start()


def focus(control: ipywidgets.Widget) -> None:
    """Move the keyboard to a control, where ipywidgets can: from version 8 on."""
    if hasattr(control, "focus"):
        control.focus()
