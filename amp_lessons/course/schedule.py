"""When something that was practised is due again: spaced repetition by FSRS.

FSRS models how fast each thing is forgotten and plans the next review for the day on which it will be
remembered with a probability of 90 %. Its Python implementation is its authors' own (py-fsrs); nothing is
drawn at random here, so that the same reviews always lead to the same day.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from amp_lessons.course.progress import GRADES, Review


def due_at(reviews: Sequence[Review], *, whole_days: bool = False) -> datetime | None:
    """Return when something with these reviews is due again; None if there are none.

    What is new or forgotten comes back after minutes first. With ``whole_days`` it never does: that is for
    what nobody does twice in an hour.
    """
    if not reviews:
        return None
    from fsrs import Card, Rating

    scheduler, card = _scheduler(whole_days), Card(card_id=0)
    for review in sorted(reviews, key=lambda each: each.moment):
        rating = Rating(GRADES.index(review.grade) + 1)
        card, _ = scheduler.review_card(card, rating, review.moment.astimezone(timezone.utc))
    return card.due


@functools.cache
def _scheduler(whole_days: bool) -> Any:
    from fsrs import Scheduler  # whoever practises nothing need not wait for it

    steps: dict[str, Any] = {"learning_steps": (), "relearning_steps": ()} if whole_days else {}
    return Scheduler(enable_fuzzing=False, **steps)
