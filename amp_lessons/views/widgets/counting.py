"""Views that say what was done, and count again when more is."""

from __future__ import annotations

import weakref

from amp_lessons.exercises import scores
from amp_lessons.exercises.scores import Kept
from amp_lessons.keeping.progress import ProgressError
from amp_lessons.views.base.shown import Shown


class Counting(Shown):
    """A view of what this learner has done. ``refresh`` counts it again."""

    def refresh(self) -> None:
        """Count again."""
        raise NotImplementedError

    def count_from_now_on(self) -> None:
        """Count, and again whenever an exercise is checked or a question answered."""
        self.refresh()
        _OPEN.add(self)


_OPEN: weakref.WeakSet[Counting] = weakref.WeakSet()


def count_again() -> None:
    """Have every view that says what was done count again."""
    for view in list(_OPEN):
        view.refresh()


def kept_or_message() -> tuple[Kept, str]:
    """Return what is kept, and why it could not be read: then nothing is."""
    try:
        return scores.read(), ""
    except ProgressError as error:
        return Kept(), str(error)
