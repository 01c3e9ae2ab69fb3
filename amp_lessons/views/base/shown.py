"""What a view is on the page: controls, or where they cannot be drawn, what stands in for them.

JupyterLab with ipywidgets 8 takes one output that holds both, and shows the richer. Elsewhere nobody knows
beforehand what a page will draw, so there the page decides. The cell has two outputs: what stands in, and
the controls, which stay hidden. Among these is a widget of which nothing is seen but that it is drawn: then
the one is put away, and the others come out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from markupsafe import Markup

from amp_lessons.views.base import host

host.enable_widgets_on_colab()  # before there is an anywidget, which would show an exception of it

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What JupyterLab says in the place of a widget that it cannot draw is hidden as well.
_HIDE = """
.{live} {{ display: none !important }}
.jp-OutputArea-child:has(.{stand_in}) + .jp-OutputArea-child:not(:has(.{live})) {{ display: none }}
"""
# The class twice: more particular than the rule that hides the controls.
_SHOW = """
.{stand_in} {{ display: none }}
.{live}.{live} {{ display: flex !important }}
"""


class Arrival(anywidget.AnyWidget):
    """A widget that puts ``rules``, in CSS, on the page, as long as it is drawn there."""

    _esm = Path(__file__).with_name("arrival.js")
    rules = traitlets.Unicode().tag(sync=True)


class Shown(ipywidgets.VBox):
    """Controls one below the other, and what can be read where they cannot be used."""

    children: Any

    def __init__(self, children: Any = (), **layout_and_more: Any) -> None:
        """Lay out ``children``; further arguments are those of ``ipywidgets.VBox``."""
        self._arrival: Arrival | None = None
        super().__init__(children, **layout_and_more)

    def stand_in(self) -> Markup:
        """Return as HTML what there is to read without controls."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return the reference to the live widget; each view adds what can be read without it."""
        if self.comm is None:  # closed
            return {"text/plain": repr(self)}
        return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": self.model_id}}

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Let the page decide what it shows, unless it is known: then the bundle is asked for, as always."""
        if host.shows_controls() or self.comm is None:
            raise NotImplementedError  # says to IPython: go on with _repr_mimebundle_
        self._await_arrival()
        bundle = self._repr_mimebundle_()
        live = bundle.pop(WIDGET_VIEW)
        host.publish({**bundle, "text/html": self._hiding_controls(self.stand_in())})
        host.publish({WIDGET_VIEW: live, "text/plain": ""})

    def _hiding_controls(self, stand_in: Markup) -> Markup:
        return Markup('<style>{}</style><div class="{}">{}</div>').format(
            Markup(_HIDE.format(live=self._live, stand_in=self._stand_in)), self._stand_in, stand_in
        )

    def _await_arrival(self) -> None:
        if self._arrival is None:
            self.add_class(self._live)
            self._arrival = Arrival(rules=_SHOW.format(live=self._live, stand_in=self._stand_in))
            self.children = (*self.children, self._arrival)

    @property
    def _live(self) -> str:
        return f"amp-live-{self.model_id}"

    @property
    def _stand_in(self) -> str:
        return f"amp-stand-in-{self.model_id}"
