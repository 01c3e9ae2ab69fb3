"""The map of the course as a table: each lesson's minutes, and what a learner has done of it."""

from __future__ import annotations

from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import counted, listed
from amp_lessons.course.exercises import scores
from amp_lessons.course.exercises.scores import Score
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.shipped import Head
from amp_lessons.course.progress import Learner
from amp_lessons.course.routes import following
from amp_lessons.course.routes.catalogue import ABLE_TO, IN_ORDER
from amp_lessons.course.routes.stops import Route

_MOST_NAMED = 4  # exercises that are due; `amp-lessons progress` names them all
_HEAD = ("lesson", "core", "deeper", "exercises solved", "questions answered")


def table(kept: Learner) -> Table:
    """Return one row a lesson, and what is due. Raises FileNotFoundError where the lessons did not come."""
    found = _scored(kept)
    rows = [_row(head, score) for head, score in found]
    return Table(_HEAD, rows, _caption(found), [due(kept), *filter(None, [kept.message])])


def as_markdown(route: Route, kept: Learner) -> str:
    """Return a route's stops as steps, what was done marked, above all lessons; links lead to neighbours.

    Who begins is not told of each lesson that nothing was done. Afterwards it says up to when it counts: what
    stands on a page may be of yesterday. So it does not say what is due, which is another on another day.
    """
    found, last = _scored(kept), tasks.stopped_at(kept)
    step = following.next_on(route, kept)
    on = getattr(step.stop, "lesson", "") if step else ""
    items = [_item(head, score, begun=last is not None) for head, score in found]
    items = [item + " ← next" * (head.number == on) for item, (head, _) in zip(items, found, strict=True)]
    steps = [f"**{route.title}**, {route.to}{route.takes}:", route.steps(kept, step.stop if step else None)]
    steps = [] if route is IN_ORDER else steps  # the lessons below are its stops
    counted_at = f" (counted up to what you did on {last[1].astimezone():%Y-%m-%d at %H:%M})" if last else ""
    caption = _caption(found) if last else hours([head for head, _ in found]).capitalize()
    return "\n\n".join([*steps, f"**{caption}**{counted_at}", "\n".join(items)])


def _scored(kept: Learner) -> list[tuple[Head, Score]]:
    return [(head, scores.score(head.number, kept)) for head in shipped.heads()]


def _caption(found: list[tuple[Head, Score]]) -> str:
    done = sum(bool(score.done_at) for _, score in found)
    return f"{done} of {counted(len(found), 'core')} done; {hours([head for head, _ in found])}"


def _item(head: Head, score: Score, *, begun: bool) -> str:
    """Return a lesson as an item of a list in markdown, which any page is wide enough for."""
    minutes = f"{head.minutes} + {head.deeper}" if head.deeper else str(head.minutes)
    *_, exercises, questions = _row(head, score)
    counts = [
        (each, what) for each, what in ((exercises, "exercise"), (questions, "question")) if each != "–"
    ]
    said = [f"{each} {what}s" if begun else counted(int(each.split()[-1]), what) for each, what in counts]
    done = ", ".join([*([_state(score)] if begun else []), *said])
    link = f"[{head.number} {head.short_title}]({head.file})"
    return f"- **{link}**: {ABLE_TO[head.number]}. *{minutes} minutes, {done}*"


def hours(heads: list[Head]) -> str:
    """Say how long all cores take, and all that there is."""
    core, deeper = (sum(getattr(each, what) for each in heads) for what in ("minutes", "deeper"))
    return (
        f"the cores take {core / 60:.0f} hours together, {(core + deeper) / 60:.0f} with all that is deeper"
    )


def _row(head: Head, score: Score) -> tuple[str, ...]:
    core, deeper = score.core, score.deeper
    exercises, questions = core.exercises + deeper.exercises, core.questions + deeper.questions
    return (
        f"{head.number} {head.short_title}",
        f"{head.minutes} min, {_state(score)}",
        f"{head.deeper} min" if head.deeper else "–",
        f"{core.solved + deeper.solved} of {exercises}" if exercises else "–",
        f"{core.answered + deeper.answered} of {questions}" if questions else "–",
    )


def _state(score: Score) -> str:
    if score.done_at:
        return "done"
    return "begun" if score.core.answered or score.core.tried else "not begun"


def due(kept: Learner) -> str:
    """Describe what is due for repetition, of all lessons."""
    exercises = [f"{each.title} (lesson {each.lesson})" for each in scores.due_exercises(kept)]
    named, others, cards = exercises[:_MOST_NAMED], len(exercises[_MOST_NAMED:]), scores.due_cards(kept)
    named += [f"{others} more"] if others else []
    named += [f"{counted(cards, 'interview card')} (lesson 10)"] if cards else []
    return f"Due for repetition: {listed(named)}." if named else "Nothing is due for repetition now."
