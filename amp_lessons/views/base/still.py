"""Pictures that need no controls."""

from __future__ import annotations

from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.view import View


class Still(View):
    """A picture with its caption, without anything to press: on a page it is no widget."""

    has_controls = False

    def __init__(self, picture: Picture, caption: str, alt: str, *, mark: str = "") -> None:
        """Show ``picture``; ``alt`` says in a phrase what it is of."""
        super().__init__([], alt)
        self.show(picture, caption, mark=mark)
