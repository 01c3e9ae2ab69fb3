"""Flash cards with spaced repetition: the questions of the bank, graded by the learner against the rubric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from amp_lessons._base.text.words import counted
from amp_lessons.course import progress, schedule
from amp_lessons.course.interview.bank import LESSONS, LEVELS, QUESTIONS, TOPICS, Question, known, question
from amp_lessons.course.interview.estimates import Estimate
from amp_lessons.course.interview.proofs import Proof
from amp_lessons.course.progress import GRADES, Review

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
NEW_A_DAY = 10  # each new card comes back some eight times in its first year


@dataclass(frozen=True)
class Card:
    """One question, and when it was practised. A question for a number draws others each time."""

    question: Question = field(repr=False)
    reviews: tuple[Review, ...] = ()

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id

    @property
    def front(self) -> str:
        """What is asked."""
        return self._drawn.question

    @property
    def back(self) -> str:
        """The model answer."""
        return self._drawn.answer

    @property
    def points(self) -> tuple[str, ...]:
        """What a good answer covers."""
        return self.question.points

    def prove(self) -> Proof:
        """Run the cell that shows that the answer is true."""
        return self._drawn.prove()

    def begun_on(self, day: date) -> bool:
        """Whether the card was new on that day (UTC), and turned; a mock interview turns none."""
        return any(not each.in_mock for each in self.reviews[:1]) and self.reviews[0].moment.date() == day

    @property
    def due_at(self) -> datetime | None:
        """When the card is due; None if it is new."""
        return schedule.due_at(self.reviews)

    @property
    def _drawn(self) -> Question | Estimate:
        return (
            Estimate(self.question, len(self.reviews)) if self.question.asks_for_a_number else self.question
        )


@dataclass(frozen=True)
class Graded:
    """When a card comes back after a grade; ``message`` names a damaged progress file, if there was one."""

    due_at: datetime
    message: str = ""


class Deck:
    """The cards of some topics, levels and lessons, all of them by default.

    What was practised is read from the progress file each time, and written before ``grade`` returns: two
    decks, or two processes, see the same.
    """

    def __init__(
        self,
        topics: Iterable[str] = TOPICS,
        levels: Iterable[str] = LEVELS,
        *,
        lessons: Iterable[str] = LESSONS,
        new_a_day: int = NEW_A_DAY,
        now: Callable[[], datetime] = progress.utc_now,
    ) -> None:
        """Choose the cards; ``lessons`` are numbers, such as ``"03"``, and ``now`` is the clock.

        Raises ValueError for an unknown topic or level, and for a lesson that answers no question.
        """
        self.topics = known(topics, TOPICS, "topic")
        self.levels = known(levels, LEVELS, "level")
        self.lessons = known(lessons, LESSONS, "lesson with questions")
        self._new_a_day, self._now = new_a_day, now
        self.message = ""

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards, the easier levels first. Raises ProgressError if the progress file cannot be read."""
        practised = self._reviews()
        chosen = [
            each
            for each in QUESTIONS
            if each.topic in self.topics and each.level in self.levels and each.lesson in self.lessons
        ]
        chosen.sort(key=lambda each: LEVELS.index(each.level))
        return tuple(Card(each, practised.get(each.id, ())) for each in chosen)

    def due(self) -> tuple[Card, ...]:
        """Return the cards to repeat now, the longest overdue first."""
        dated = [(card.due_at, card) for card in self.cards if card.reviews]
        ready = [(when, card) for when, card in dated if when is not None and when <= self._now()]
        return tuple(card for _, card in sorted(ready, key=lambda pair: pair[0]))

    def new(self) -> tuple[Card, ...]:
        """Return the new cards that today still has room for; what a mock interview asked takes none."""
        today = self._now().date()
        begun = sum(card.begun_on(today) for card in self.cards)
        fresh = [card for card in self.cards if not card.reviews]
        return tuple(fresh[: max(0, self._new_a_day - begun)])

    def next(self) -> Card | None:
        """Return the card to practise now: one that is due, else a new one; None if that is all for today."""
        return next(iter((*self.due(), *self.new())), None)

    def card(self, card_id: str) -> Card:
        """Return the card of a question. Raises KeyError for an unknown one, naming the nearest."""
        return Card(question(card_id), self._reviews().get(card_id, ()))

    def grade(self, card_id: str, grade: str) -> Graded:
        """Keep how well a card was known, one of ``GRADES``, and return when it comes back.

        Raises KeyError for an unknown card, ValueError for a grade that is none, and ProgressError if it
        cannot be kept.
        """
        card = self.card(card_id)
        message = progress.change(lambda kept: kept.review(card.id, grade, self._now()))
        due = self.card(card_id).due_at
        assert due is not None
        return Graded(due, message)

    def take_back(self, card_id: str) -> str:
        """Forget the last grade of a card; return what the learner should know, usually nothing.

        Raises KeyError for an unknown card, and ProgressError if that cannot be kept.
        """
        card = question(card_id)
        return progress.change(lambda kept: kept.take_back(card.id))

    def waits(self, card: Card) -> dict[str, timedelta]:
        """Return after how long ``card`` would come back, by grade."""
        now = self._now()
        due = {each: schedule.due_at([*card.reviews, Review(now.isoformat(), each)]) for each in GRADES}
        return {grade: when - now for grade, when in due.items() if when}

    def __str__(self) -> str:
        due, new, cards = self.due(), self.new(), self.cards
        coming = sorted(when for card in cards if (when := card.due_at) and when > self._now())
        said = f"{len(cards)} cards: {len(due)} to repeat now, {len(new)} new ones for today"
        return f"{said}; the next comes back in {wait(coming[0] - self._now())}" if coming else said

    __repr__ = __str__

    def _reviews(self) -> Mapping[str, tuple[Review, ...]]:
        found = progress.read()
        self.message = found.message or self.message
        return found.reviews


def suggested_grade(covered: int, points: int) -> str:
    """Return the grade that the rubric suggests to whoever has covered so many of its points."""
    if covered == points:
        return "good"
    return "hard" if 2 * covered >= points else "again"


def wait(time: timedelta) -> str:
    """Return a waiting time in words: ``1 minute``, ``6 hours``, ``11 days``."""
    seconds = max(60.0, time.total_seconds())
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return counted(round(seconds / size), unit)
