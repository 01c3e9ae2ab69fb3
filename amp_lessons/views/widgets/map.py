"""The map of the course: what was done of each lesson, what is due, and the next step on a route."""

from __future__ import annotations

from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons.exercises.scores import Kept
from amp_lessons.keeping import chosen
from amp_lessons.keeping.progress import ProgressError
from amp_lessons.routes import overview
from amp_lessons.routes.catalogue import ROUTES
from amp_lessons.text.tables import Table
from amp_lessons.views.base.controls import dropdown
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.widgets.counting import Counting, count_again, kept_or_message

_STYLE = Markup(
    "<style>.amp-map th, .amp-map td { padding: 1px 16px 1px 0; text-align: left } "
    ".amp-map tbody th { font-weight: normal } .amp-map p { margin: 6px 0 }</style>"
)
_TITLES = {each.title: each for each in ROUTES}


class Map(Counting):
    """All lessons, and what this learner has done of them; it counts anew whenever that changes."""

    def __init__(self) -> None:
        """Show the map, and the next step on the route that was chosen last, the first one at first."""
        kept_route = overview.chosen(kept_or_message()[0]) or ROUTES[0]
        self._chosen = dropdown("What brought you here?", list(_TITLES), kept_route.title)
        self._chosen.observe(lambda _: self._keep(), "value")
        self._unkept = ""
        self._page, self._next = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__([self._page, self._chosen, self._next], layout={"max_width": "900px"})
        self.add_class("amp-map")
        self.count_from_now_on()

    def choose(self, title: str) -> None:
        """Choose a route by its title, as the control does; ValueError where there is none called so."""
        if title not in _TITLES:
            raise ValueError(f"no route is called {title!r}; there are: {'; '.join(_TITLES)}")
        self._chosen.value = title

    @property
    def said(self) -> str:
        """The map and the next step, as text."""
        return f"{self._table}\n{self._step()}"

    def refresh(self) -> None:
        """Count again what was done."""
        self._kept, message = kept_or_message()
        self._table = overview.table(self._kept)
        self._table.notes += tuple(filter(None, (message, self._unkept)))
        self._page.value = _in_style(self._table.as_html())
        self._turn()

    def _keep(self) -> None:
        """Keep the choice, which the ends of lessons go by too; a file that cannot be written keeps none."""
        try:
            self._unkept = chosen.record(_TITLES[self._chosen.value].id)
        except ProgressError as error:
            self._unkept = str(error)
        count_again()

    def _turn(self) -> None:
        self._next.value = Markup('<p aria-live="polite" style="margin:0;{}">{}</p>').format(
            CAPTION_STYLE, self._step()
        )

    def _step(self) -> str:
        return overview.next_step(_TITLES[self._chosen.value], self._kept)

    def stand_in(self) -> Markup:
        """Return the map without what this learner has done, which the kernel alone knows."""
        return _in_style(_untouched().as_html())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Leave the learner's progress out, so that a stored map is the same for everyone."""
        untouched = _untouched()
        texts = {"text/plain": str(untouched), "text/markdown": untouched.as_markdown()}
        return {**super()._repr_mimebundle_(**kwargs), **texts}


def _untouched() -> Table:
    return overview.table(Kept())


def _in_style(html: Markup) -> Markup:
    return Markup('{}<div class="amp-map" style="{}">{}</div>').format(_STYLE, CAPTION_STYLE, html)
