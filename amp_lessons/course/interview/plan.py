"""A plan until an interview: cards every day, sections to read, and code, mocks, designs, a sheet by turns.

It is made anew each time, of what is not done yet and the days that are left: a day that was missed is spread
over the others, and what no longer fits is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.course import progress
from amp_lessons.course.interview.bank import DESIGNS
from amp_lessons.course.interview.code_tasks import TASKS
from amp_lessons.course.progress import Learner
from amp_lessons.course.routes.catalogue import route
from amp_lessons.course.routes.stops import Core, InLesson

_CARDS = 10  # minutes a day
_A_DAYS_CARDS = 5  # so many reviews, and a day's cards count as done
# sections of lessons that the plan has as commands: mocks and code with other seeds, cards of all lessons
_BY_COMMAND = ("mock", "coding", "interview")
_MOCK_EVERY = 3  # days, counted back from the last one
_LONGEST_MOCK, _SHORTEST_MOCK = 45, 20
_DESIGN_ON = 2  # of those three days: the one before that of a mock interview
_SHEET, _SHEET_ON = 10, (0, 3)  # minutes; so many days before the interview, which are no mock's
LEAST_MINUTES = 20  # a day: cards, and one thing beside them


@dataclass(frozen=True)
class Item:
    """One thing to do: ``name`` is what it is marked by, ``how`` where it is, or the command that begins it.

    ``traced`` says that the course sees by itself when it is done.
    """

    name: str
    what: str
    minutes: int
    how: str
    traced: bool = False
    done: bool = False


@dataclass(frozen=True)
class Day:
    """What there is to do on one day."""

    on: date
    items: tuple[Item, ...]

    @property
    def minutes(self) -> int:
        """The minutes of all of it."""
        return sum(item.minutes for item in self.items)


@dataclass(frozen=True)
class Plan:
    """The days that are left, today first; ``missed`` are days on which nothing was done.

    ``left_out`` no longer fits before the interview, which is ``until``.
    """

    until: date
    days: tuple[Day, ...]
    left_out: tuple[Item, ...]
    missed: tuple[date, ...] = ()
    message: str = ""

    @property
    def today(self) -> Day:
        """What there is to do today."""
        return self.days[0]

    def named(self, name: str) -> Item:
        """Return today's or a later item by its name. Raises ValueError that names today's."""
        for item in (item for day in self.days for item in day.items):
            if item.name == name:
                return item
        names = ", ".join(item.name for item in self.today.items)
        raise ValueError(f"nothing in the plan is called {name!r}; today there are {names}")


def plan(until: date, minutes: int, today: date) -> Plan:
    """Plan from ``today`` to the day before ``until``, with so many minutes a day, of what is not done yet.

    On the day itself there are cards and the sheet alone. Raises ValueError for a day that is over and for
    fewer than ``LEAST_MINUTES``, TypeError for what is no day or no whole number, and ProgressError where
    what was done cannot be read.
    """
    for day, name in ((until, "until"), (today, "today")):
        require(day, date, name, "a datetime.date")
    require_whole(minutes, "minutes", least=LEAST_MINUTES)
    if until < today:
        raise ValueError(f"{until.isoformat()} is over; today is {today.isoformat()}")
    kept = progress.read()
    planner = _Planner(until, minutes, today, kept)
    days = tuple(planner.days())
    return Plan(until, days, tuple(planner.reading), tuple(_missed(kept, today)), kept.message)


class _Planner:
    """Fills day after day; ``reading`` is what is still to be read."""

    def __init__(self, until: date, minutes: int, today: date, kept: Learner) -> None:
        self._until, self._minutes, self._today = until, minutes, today
        self._kept, self._done = kept, kept.plan.done
        self.reading = [item for item in _reading(kept) if item.name not in self._done]
        self._designs = [item for item in _designing() if item.name not in self._done]

    def days(self) -> Iterator[Day]:
        """Yield each day that is left, and the day itself."""
        for number in range((self._until - self._today).days):
            day = self._today + timedelta(days=number)
            yield Day(day, tuple(self._filled(day)))
        yield Day(self._until, (self._cards(self._until), *self._sheet(self._until, LEAST_MINUTES - _CARDS)))

    def _filled(self, day: date) -> list[Item]:
        """Return a day's cards, on some a mock, a design or the sheet, and reading and code by turns."""
        items = list(self._done_today()) if day == self._today else []
        items.append(self._cards(day))

        def left() -> int:
            return self._minutes - sum(item.minutes for item in items)

        for planned in (self._mock, self._sheet, self._design):
            items += planned(day, left())
        coded = False
        while self.reading and self._fits(self.reading[0], left()):
            items.append(self.reading.pop(0))
            if not coded:
                items += (code := self._code(day, left()))
                coded = bool(code)
        return items if coded else [*items, *self._code(day, left())]

    def _fits(self, item: Item, left: int) -> bool:
        """Whether there is time for it; what is longer than a whole day gets a day that nothing else has."""
        room = self._minutes - _CARDS
        return item.minutes <= left or (left == room < item.minutes)

    def _done_today(self) -> Iterator[Item]:
        """Yield what was marked as done today: it has taken its minutes."""
        for item in (*_reading(self._kept), *_designing()):
            if self._done.get(item.name) == self._today.isoformat():
                yield replace(item, done=True)

    def _cards(self, day: date) -> Item:
        """Return a day's cards, done after so many; what a mock interview has asked is no card."""
        reviews = [each for of_one in self._kept.reviews.values() for each in of_one]
        today = sum(each.moment.astimezone().date() == day and not each.in_mock for each in reviews)
        how, done = "amp-lessons interview cards", today >= _A_DAYS_CARDS
        return Item(f"cards-{day:%m-%d}", "flash cards", _CARDS, how, traced=True, done=done)

    def _before(self, day: date) -> int:
        return (self._until - day).days

    def _mock(self, day: date, left: int) -> Iterator[Item]:
        """Yield a mock interview on every third day, counted back from the last, where it fits."""
        length, name = min(_LONGEST_MOCK, left // 5 * 5), f"mock-{day:%m-%d}"
        if self._before(day) % _MOCK_EVERY == 1 and length >= _SHORTEST_MOCK:
            how = f"amp-lessons interview mock --minutes {length} --seed {_seed(day)}"
            yield Item(name, "a mock interview", length, how, done=name in self._done)

    def _sheet(self, day: date, left: int) -> Iterator[Item]:
        """Yield the sheet on the interview's day and some days before it, where it fits."""
        name = f"sheet-{day:%m-%d}"
        if self._before(day) in _SHEET_ON and left >= _SHEET:
            what = "the sheet: read it, then draw it from memory"
            yield Item(name, what, _SHEET, "amp-lessons interview sheet", done=name in self._done)

    def _design(self, day: date, left: int) -> Iterator[Item]:
        """Yield a round of system design that is not done yet, between mock interviews, where it fits."""
        done = any(self._done.get(item.name) == day.isoformat() for item in _designing())
        wanted = self._before(day) % _MOCK_EVERY == _DESIGN_ON and not done
        if wanted and self._designs and self._designs[0].minutes <= left:
            yield self._designs.pop(0)

    def _code(self, day: date, left: int) -> list[Item]:
        """Return a code round: one that was done on this day, of any seed, else the longest that fits."""
        if left < min(TASKS):
            return []
        done = [
            each.minutes
            for each in self._kept.rounds.values()
            if (each.ended_at or any(one.passed for one in each.tries))
            and _day(each.ended_at or each.began_at) == day
        ]
        length = next(iter(done), max(each for each in TASKS if each <= left))
        how = f"amp-lessons interview code --minutes {length} --seed {_seed(day)}"
        return [Item(f"code-{day:%m-%d}", "a code round", length, how, traced=True, done=bool(done))]


def _designing() -> Iterator[Item]:
    """Yield the rounds of system design."""
    for each in DESIGNS:
        what = f"a round of system design: {each.title[0].lower()}{each.title[1:]}"
        yield Item(f"design-{each.id}", what, each.minutes, f"amp-lessons interview design {each.id}")


def _seed(day: date) -> int:
    return day.toordinal() % 1000


def _reading(kept: Learner) -> Iterator[Item]:
    """Yield the sections of the route to an interview that are not done; the rest is planned by itself."""
    for stop in route("interview").stops:
        if isinstance(stop, Core):
            name = f"{stop.lesson}-core"
        elif isinstance(stop, InLesson) and stop.section not in _BY_COMMAND:
            name = f"{stop.lesson}-{stop.section}"
        else:
            continue
        if not stop.done(kept):
            yield Item(name, str(stop), stop.minutes, "amp-lessons lab")


def _days_of_work(kept: Learner) -> set[date]:
    """Return the days on which something was practised, written, read to its end or marked."""
    reviews = [each.at for of_one in kept.reviews.values() for each in of_one]
    solved = [each.solved_at for each in kept.records.values() if each.solved_at]
    begun = [each.began_at for each in kept.rounds.values()]
    moments = [*reviews, *solved, *begun, *kept.cores.values()]
    return {_day(moment) for moment in moments} | {date.fromisoformat(day) for day in kept.plan.done.values()}


def _day(moment: str) -> date:
    """Return the day of a moment (UTC, ISO 8601) where the learner is."""
    return datetime.fromisoformat(moment).astimezone().date()


def _missed(kept: Learner, today: date) -> Iterator[date]:
    """Yield the days since the plan began on which nothing was done."""
    worked, began = _days_of_work(kept), date.fromisoformat(kept.plan.began or today.isoformat())
    days = (began + timedelta(days=number) for number in range((today - began).days))
    return (day for day in days if day not in worked)
