"""Interviews under a clock: what stands for their controls says how to have the same in a terminal."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from markupsafe import Markup

from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.shown import Shown


class InTerminalToo(Shown):
    """A view of what a command of the course does as well."""

    @abstractmethod
    def _what(self) -> str:
        """Say in two sentences what this is."""

    @abstractmethod
    def _command(self) -> str:
        """Return the command that leads the same in a terminal."""

    def stand_in(self) -> Markup:
        """Return what it is, and how to have it in a terminal."""
        return Markup('<p style="{}">{} In a terminal: <code>{}</code></p>').format(
            CAPTION_STYLE, self._what(), self._command()
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = f"{self._what()} In a terminal: {self._command()}"
        bundle["text/markdown"] = f"{self._what()} In a terminal: `{self._command()}`"
        return bundle
