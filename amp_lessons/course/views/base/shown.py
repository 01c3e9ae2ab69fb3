"""What a view is on the page: controls, or where they cannot be drawn, what stands in for them.

Nobody knows beforehand what a page will draw: today, or tomorrow, when the kernel is gone. So the page
decides. A cell has two outputs: what stands in, and the controls, which stay hidden. Among these is a widget
of which nothing is seen but that it is drawn: then the one is put away, and the others come out. Where a
program runs the cells there is no page (``has_page``), and no controls are sent.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons._base.drawing.style import ACCENT
from amp_lessons.course.routes import returning
from amp_lessons.course.views.base import again


def has_page() -> bool:
    """Return whether there is a page on which somebody looks: a Jupyter server's, a host's or an editor's.

    There is none where a program runs the cells, to store what they show or to compare it.
    """
    from IPython import get_ipython

    on_a_server = "JPY_SESSION_NAME" in os.environ or "KAGGLE_KERNEL_RUN_TYPE" in os.environ
    shell = get_ipython()  # VS Code leaves the notebook's path there
    return on_a_server or on_colab() or (shell is not None and "__vsc_ipynb_file__" in shell.user_ns)


def on_colab() -> bool:
    """Return whether this is a kernel of Google Colab, which has loaded that package before any cell runs."""
    return "google.colab" in sys.modules


@cache
def enable_widgets_on_colab() -> None:
    """Have Colab's page load widgets that do not come with ipywidgets; once, and it never raises.

    A learner can do nothing about it if that fails. anywidget would ask again for each of its widgets, and
    pass the exception on: it is given something to ask that does not fail.
    """
    if not on_colab():
        return
    try:
        from google.colab import output
    except ImportError:
        return
    try:
        output.enable_custom_widget_manager()
    except Exception:  # whatever it is, the pictures are there without it
        output.enable_custom_widget_manager = lambda *_, **__: None


def publish(data: dict[str, Any], name: str | None = None, *, anew: bool = False) -> None:
    """Put an output below the running cell: ``data`` by mime type, of which the page takes the richest.

    One that has a ``name``, no other output's, is replaced by what is published under it ``anew``.
    """
    from IPython.display import display

    display(data, raw=True, display_id=name, **({"update": True} if anew else {}))


enable_widgets_on_colab()  # before there is an anywidget, which would show an exception of it

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What JupyterLab says in the place of a widget that it cannot draw is hidden as well. What stands in keeps
# its place unseen for a moment, in which the controls mostly come. JupyterLab breaks printed lines anywhere:
# here they are broken between words.
_HIDE = """
.{live} {{ display: none !important }}
.jp-OutputArea-child:has(.{stand_in}) + .jp-OutputArea-child:not(:has(.{live})) {{ display: none }}
.jp-Notebook .jp-OutputArea-output pre {{ word-break: normal; overflow-wrap: anywhere }}
.amp-again, .jp-Cell:has(.amp-how) ~ .jp-Cell .amp-first {{ display: none }}
.jp-Cell:has(.amp-how) ~ .jp-Cell .amp-again {{ display: inline }}
@keyframes amp-waits {{ from, to {{ visibility: hidden }} }}
.{stand_in} {{ animation: amp-waits 0.5s }}
"""
# The class twice: more particular than the rule that hides the controls. Those of a kernel that was restarted
# are dead, and JupyterLab marks them, and ``arrival.js`` those of one that was shut down. The arrow of a list
# is black in ipywidgets, on a dark page as well.
_SHOW = """
:root:has(.{live}:not(.jupyter-widgets-disconnected)) .{stand_in} {{ display: none }}
.{live}.{live}:not(.jupyter-widgets-disconnected) {{ display: flex !important }}
.{live} .widget-html, .{live} .widget-html-content {{ min-width: 0 }}
[data-jp-theme-light=false] {{ --jp-widgets-dropdown-arrow: url("{arrow}") }}
"""
_LIGHT_ARROW = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E"
    "%3Cpath fill='none' stroke='%23ddd' stroke-width='2' d='M5 7l4 4 4-4'/%3E%3C/svg%3E"
)
# Mostly somebody reads it in a notebook opened anew, where this cell alone may raise NameError. The first
# such cell of a notebook says how; the others, in JupyterLab, remind of it.
_HOW = Markup('<p style="margin:0;{};border-left:5px solid {};padding-left:10px">{}</p>')
_ALONE = "Controls: click here, then Shift+Enter"
_AFTER_OTHERS = Markup(
    '<span class="amp-how amp-first">To get the controls, click here, then menu <em>Run</em>, '
    "<em>Run All Above Selected Cell</em>, then Shift+Enter.</span>"
    '<span class="amp-again">Controls: Run All Above, then Shift+Enter</span>'
)


class Arrival(anywidget.AnyWidget):
    """A widget that puts ``rules``, in CSS, on the page, as long as it is drawn there.

    Meanwhile keys that are pressed in the view, the element of the class ``view``, are the view's own.
    """

    _esm = "\n".join(Path(__file__).with_name(name).read_text("utf-8") for name in ("page.js", "arrival.js"))
    rules = traitlets.Unicode().tag(sync=True)
    view = traitlets.Unicode().tag(sync=True)


class Shown(ipywidgets.VBox):
    """Controls one below the other, and what can be read where they cannot be used."""

    children: Any
    has_controls = True

    def __init__(self, children: Any = (), **layout_and_more: Any) -> None:
        """Lay out ``children``; further arguments are those of ``ipywidgets.VBox``."""
        self._arrival: Arrival | None = None
        self._published = self._runs_alone = False
        super().__init__(children, **layout_and_more)

    def stand_in(self) -> Markup:
        """Return as HTML what there is to read without controls."""
        raise NotImplementedError

    def stored(self) -> dict[str, str]:
        """Return by mime type what is stored for readers without a kernel: ``text/plain`` at least."""
        raise NotImplementedError

    def take_over(self, before: Any) -> None:
        """Go on where the learner left ``before``, a view of this kind that began as this one does."""
        again.copy_controls(before, self, Shown)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return the reference to the live widget, if it was not closed, and what can be read without it."""
        if self.comm is None:
            return self.stored()
        return {
            WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.model_id},
            **self.stored(),
        }

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Publish what stands in, and the controls; without a page IPython takes the bundle instead."""
        if self.comm is None or not has_page():
            raise NotImplementedError  # says to IPython: go on with _repr_mimebundle_
        again.go_on(self, self.take_over)
        bundle = self._repr_mimebundle_()  # where work goes on, it waits: what stands in comes after
        self._published, self._runs_alone = True, returning.runs_alone(again.code_of_cell())
        publish({"text/html": self._hiding_controls(), "text/plain": bundle["text/plain"]}, self._stand_in)
        if self.has_controls:
            if self._arrival is None:
                self.add_class(self._live)
                rules = _SHOW.format(live=self._live, stand_in=self._stand_in, arrow=_LIGHT_ARROW)
                self._arrival = Arrival(rules=rules, view=self._live)
                self.children = (self._arrival, *self.children)
            publish({WIDGET_VIEW: bundle[WIDGET_VIEW], "text/plain": ""})

    def renew_stand_in(self) -> None:
        """Publish anew what stands in, where it is on a page: tomorrow it shall say what was done today."""
        if self._published and self.comm is not None:
            plain = self.stored()["text/plain"]
            publish({"text/html": self._hiding_controls(), "text/plain": plain}, self._stand_in, anew=True)

    def _hiding_controls(self) -> Markup:
        if not self.has_controls:
            return self.stand_in()
        return Markup('<style>{}</style><div class="{}">{}{}</div>').format(
            Markup(_HIDE.format(live=self._live, stand_in=self._stand_in)),
            self._stand_in,
            _HOW.format(CAPTION_STYLE, ACCENT, _ALONE if self._runs_alone else _AFTER_OTHERS),
            self.stand_in(),
        )

    @traitlets.validate("children")
    def _with_arrival(self, proposal: dict[str, Any]) -> tuple[ipywidgets.Widget, ...]:
        """Keep the sign of arrival where a view replaces its controls: they would be hidden without it.

        It comes first, because a page draws anew what stands behind the first child that is another one.
        """
        children: tuple[ipywidgets.Widget, ...] = proposal["value"]
        if self._arrival is None or self._arrival in children:
            return children
        return (self._arrival, *children)

    @property
    def _live(self) -> str:
        return f"amp-live-{self.model_id}"

    @property
    def _stand_in(self) -> str:
        return f"amp-stand-in-{self.model_id}"
