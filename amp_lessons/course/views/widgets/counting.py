"""Views that say what was done, and count again when more is."""

from __future__ import annotations

import weakref
from typing import Any

from amp_lessons.course import progress
from amp_lessons.course.progress import Learner, ProgressError
from amp_lessons.course.views.base import shown
from amp_lessons.course.views.base.shown import Shown


class Counting(Shown):
    """A view of what this learner has done. ``refresh`` counts it again."""

    _linked_as = ""  # the name of the output below, once it is there

    def refresh(self) -> None:
        """Count again."""
        raise NotImplementedError

    def linked(self) -> str:
        """Return in markdown what stands below the view: there the page knows where links lead."""
        raise NotImplementedError

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Put what has links below the view, as an output of its own."""
        try:
            super()._ipython_display_(**kwargs)
        except NotImplementedError:
            shown.publish(self._repr_mimebundle_())
        self._linked_as = f"amp-linked-{id(self)}"
        self.publish_linked()

    def publish_linked(self, *, anew: bool = False) -> None:
        """Publish what has links, ``anew`` in the place of what stands there."""
        text = self.linked()
        shown.publish({"text/markdown": text, "text/plain": text}, self._linked_as, anew=anew)

    def count_from_now_on(self) -> None:
        """Count, and again whenever an exercise is checked or a question answered."""
        self.refresh()
        _OPEN.add(self)


_OPEN: weakref.WeakSet[Counting] = weakref.WeakSet()


def count_again() -> None:
    """Have every view that says what was done count again."""
    for view in list(_OPEN):
        view.refresh()
        view.renew_stand_in()
        if view._linked_as:
            view.publish_linked(anew=True)


def kept_or_message() -> tuple[Learner, str]:
    """Return what is kept, and why it could not be read: then nothing is."""
    try:
        return progress.read(), ""
    except ProgressError as error:
        return Learner(), str(error)
