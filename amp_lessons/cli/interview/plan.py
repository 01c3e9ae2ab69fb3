"""``amp-lessons interview --until DATE --minutes N``: what there is to do today, and until the interview."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import date, timedelta

from amp_lessons._base.text.words import counted
from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import rule, say
from amp_lessons.course import progress
from amp_lessons.course.interview.plan import LEAST_MINUTES, Plan, plan

_MINUTES = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a plan."""
    options = parser.add_argument_group("a plan for a date")
    options.add_argument(
        "--until",
        type=_day,
        metavar="DATE",
        help="plan until an interview on this day, such as 2026-12-04 or friday",
    )
    options.add_argument(
        "--minutes",
        dest="minutes_a_day",
        type=typed.whole(LEAST_MINUTES),
        metavar="N",
        help=f"how long you have each day (default: as last time, or {_MINUTES})",
    )
    options.add_argument(
        "--done", nargs="+", metavar="NAME", help="note that these were done today: those nobody else notices"
    )
    options.add_argument("--undo", nargs="+", metavar="NAME", help="take back that these were done")


def wanted(args: argparse.Namespace) -> bool:
    """Whether a plan is asked for, or there is one to show."""
    asked = args.until or args.minutes_a_day or args.done or args.undo
    return bool(asked) or progress.read().plan.until >= date.today().isoformat()


def run(args: argparse.Namespace) -> int:
    """Plan, note what was done, and show what there is to do. Raises ValueError and ProgressError."""
    today, kept = date.today(), progress.read().plan
    until = args.until or (date.fromisoformat(kept.until) if kept.until else None)
    if until is None:
        raise ValueError("--until says for which day, such as --until 2026-12-04")
    minutes = args.minutes_a_day or kept.minutes or _MINUTES
    made = plan(until, minutes, today)
    said = [
        progress.change(lambda mine: mine.plan_for(until, minutes, today)),
        _about_replaced(kept.until, until, today),
    ]
    if args.undo:
        undone = _marked(args.undo, kept.done)
        said.append(progress.change(lambda mine: mine.unmark(undone)))
        made = plan(until, minutes, today)
    if args.done:
        names = [made.named(name).name for name in args.done]
        said.append(progress.change(lambda mine: mine.mark(names, today)))
        made = plan(until, minutes, today)
    _show(made, minutes)
    for message in filter(None, (made.message, *said)):
        say(message)
    return 0


def _show(made: Plan, minutes: int) -> None:
    left = (made.until - made.today.on).days
    when = "today" if left == 0 else f"in {counted(left, 'day')}"
    say(f"Your interview is {when}, on {made.until:%A, %d %B}; {minutes} minutes a day.")
    if made.missed:
        last = f"{made.missed[-1]:%d %B}"
        named = last if len(made.missed) == 1 else f"{len(made.missed)} days, the last of them {last}"
        say(f"Nothing was done on {named}: the plan is made anew for the time that is left.")
    rule(f"today, {made.today.minutes} minutes")
    for item in made.today.items:
        say(f"{item.minutes:2} min  {item.what}", "[x] " if item.done else "[ ] ", " " * 12)
        say(item.how if item.traced else f"{item.how}   (NAME: {item.name})", " " * 12)
    if any(not item.traced and not item.done for item in made.today.items):
        say("Note what you have done where the course cannot see it: amp-lessons interview --done NAME")
    if any(not item.traced and item.done for item in made.today.items):
        say("It was not done after all? amp-lessons interview --undo NAME")
    if made.days[1:]:
        rule("then")
    for day in made.days[1:]:
        whats = "; ".join(f"{item.what}, {item.minutes} min" for item in day.items)
        say(whats, f"{day.on:%a %d %b}  ", " " * 12)
    if made.left_out:
        rule("what does not fit any more")
        for item in made.left_out:
            say(f"{item.what} ({item.minutes} min)", "  ")


def _marked(names: list[str], done: Mapping[str, str]) -> list[str]:
    """Return names that were marked as done. Raises ValueError for another, which says which were."""
    for name in names:
        if name not in done:
            known = f"these were: {', '.join(done)}" if done else "nothing was"
            raise ValueError(f"{name!r} was not noted as done; {known}")
    return names


def _about_replaced(before: str, until: date, today: date) -> str:
    """Say that another plan was replaced, and how to have it again; "" where none was that still counts."""
    if not today.isoformat() <= before != until.isoformat():
        return ""
    again = f"amp-lessons interview --until {before}"
    return f"This replaces the plan until {date.fromisoformat(before):%A, %d %B}; to have that again: {again}"


_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _day(text: str) -> date:
    """Read a date, tomorrow, or the next day of a name: on a Friday, friday is a week away."""
    named, today = text.lower(), date.today()
    if named == "tomorrow":
        return today + timedelta(days=1)
    for number, name in enumerate(_WEEKDAYS):
        if named in (name, name[:3]):
            return today + timedelta(days=(number - today.weekday() - 1) % 7 + 1)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no day such as 2026-12-04, friday or tomorrow"
        ) from None
