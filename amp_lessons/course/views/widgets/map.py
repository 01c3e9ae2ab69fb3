"""The map of the course: a route to choose, its steps, and what was done of each lesson."""

from __future__ import annotations

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import sentence_html
from amp_lessons.course import progress
from amp_lessons.course.routes import following, overview
from amp_lessons.course.routes.catalogue import IN_ORDER, ROUTES
from amp_lessons.course.routes.stops import Route
from amp_lessons.course.views.base.controls import dropdown
from amp_lessons.course.views.widgets.counting import Counting, count_again, kept_or_message

_TITLES = {each.title: each for each in (IN_ORDER, *ROUTES)}
_RUN = "Run this cell to choose your route, and to count what you have done of the lessons below."


class Map(Counting):
    """All lessons, and what this learner has done of them; it counts anew whenever that changes."""

    def __init__(self) -> None:
        """Show the map, and the route that was chosen last, the order of the lessons at first."""
        kept_route = following.chosen(kept_or_message()[0])
        self._chosen = dropdown("What brought you here?", list(_TITLES), kept_route.title)
        self._chosen.observe(lambda _: self._keep(), "value")
        self._unkept = ""
        self._next = ipywidgets.HTML()
        super().__init__([self._chosen, self._next], layout={"max_width": "900px"})
        self.add_class("amp-map")
        self.refresh_from_now_on()

    def choose(self, title: str) -> None:
        """Choose a route by its title, as the control does; ValueError where there is none called so."""
        if title not in _TITLES:
            raise ValueError(f"no route is called {title!r}; there are: {'; '.join(_TITLES)}")
        self._chosen.value = title

    @property
    def said(self) -> str:
        """The route's steps and all lessons, in markdown."""
        messages = filter(None, (self._kept.message, self._message, self._unkept))
        return "\n\n".join([overview.as_markdown(self._route, self._kept), *messages])

    @property
    def _route(self) -> Route:
        return _TITLES[self._chosen.value]

    def refresh(self) -> None:
        """Count again what was done."""
        self._kept, self._message = kept_or_message()
        said = f"{following.said_of(self._route, self._kept)} {overview.due(self._kept)}"
        self._next.value = sentence_html(said)

    def _keep(self) -> None:
        """Keep the choice, which the ends of lessons go by too; a file that cannot be written keeps none."""
        self._unkept = progress.try_changing(lambda kept: kept.choose(self._route.id))
        count_again()

    def stand_in(self) -> Markup:
        """Say what the control would do."""
        return sentence_html(_RUN)

    def linked(self) -> str:
        """Return route and lessons."""
        return self.said

    def stored(self) -> dict[str, str]:
        """Say as text what the control would do."""
        return {"text/plain": _RUN}
