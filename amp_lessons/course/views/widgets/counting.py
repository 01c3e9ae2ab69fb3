"""Views that say what was done, and count again when more is."""

from __future__ import annotations

import weakref
from typing import Any

from amp_lessons.course import progress
from amp_lessons.course.progress import Learner, ProgressError
from amp_lessons.course.views.base import shown
from amp_lessons.course.views.base.shown import Shown


class Open(Shown):
    """A view of what this learner has done, which says it anew, by ``refresh``, when more is."""

    exercise_id = ""  # of the one exercise that a view is about

    def refresh(self) -> None:
        """Say again what was done."""
        raise NotImplementedError

    def refresh_from_now_on(self) -> None:
        """Say what was done, and again whenever an exercise is checked or a question answered."""
        self.refresh()
        _OPEN.add(self)

    def renew(self) -> None:
        """Say again what was done, in what stands in for the view as well."""
        self.refresh()
        self.renew_stand_in()


class Counting(Open):
    """A view of all that this learner has done, with links below it."""

    _linked_as = ""  # the name of the output below, once it is there

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

    def renew(self) -> None:
        """Count again, and publish anew what has links."""
        super().renew()
        if self._linked_as:
            self.publish_linked(anew=True)


_OPEN: weakref.WeakSet[Open] = weakref.WeakSet()


def count_again(exercise_id: str = "") -> None:
    """Have every view that counts say again what was done, and those of the exercise that was checked."""
    for view in list(_OPEN):
        if view.exercise_id in ("", exercise_id):
            view.renew()


def kept_or_message() -> tuple[Learner, str]:
    """Return what is kept, and why it could not be read: then nothing is."""
    try:
        return progress.read(), ""
    except ProgressError as error:
        return Learner(), str(error)
