"""``amp-lessons progress``: show, export or reset what this learner has done."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping

from amp_lessons.cli import typed
from amp_lessons.course import progress

_ALL = object()  # no word that anybody could type


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons progress``."""
    what = parser.add_mutually_exclusive_group()
    for kind in ("csv", "json"):
        what.add_argument(
            f"--{kind}",
            type=typed.file_or_terminal,
            metavar="FILE",
            help=f"export as {kind.upper()}; - writes to the terminal",
        )
    what.add_argument(
        "--routes", action="store_true", help="show ways through the course, and your next step on each"
    )
    what.add_argument(
        "--reset",
        nargs="?",
        const=_ALL,
        type=_named,
        metavar="EXERCISE",
        help="forget one exercise, by title, id or how one of them begins, or all; asks first",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before --reset")


def _named(word: str) -> str:
    """Refuse an empty word: it comes from a shell variable that is not set, and nobody meant "all" by it."""
    if not word.strip():
        raise argparse.ArgumentTypeError(
            "the name of an exercise is empty; give no name at all to forget all"
        )
    return word.strip()


def run(args: argparse.Namespace) -> int:
    """Carry out ``amp-lessons progress``; return its exit status."""
    try:
        if args.csv is not None:
            typed.write(args.csv, _read().as_csv())
            return 0
        if args.json is not None:
            typed.write(args.json, _read().as_json())
            return 0
        if args.reset is not None:
            return _reset(None if args.reset is _ALL else args.reset, args.yes)
        return _show_routes() if args.routes else _show()
    except BrokenPipeError:  # nobody reads any more: the business of cli.main
        raise
    except (progress.ProgressError, OSError) as error:
        return typed.refuse(error)


def _read() -> progress.Learner:
    """Read progress; report a damaged file where that does not mix with what is exported."""
    found = progress.read()
    _warn(found.message)
    return found


def _warn(message: str) -> None:
    if message:
        print(message, file=sys.stderr)


def _show() -> int:
    from amp_lessons.course.exercises.overviews import overview_of
    from amp_lessons.course.routes import following, overview

    kept = progress.read()
    found = overview_of(kept)
    print(overview.table(kept), end="\n\n")
    print(following.said_of(following.chosen(kept), kept), end="\n\n")
    print(found)
    print(f"\nkept in {progress.path()}; `amp-lessons progress --reset TITLE` forgets one exercise")
    print("`amp-lessons progress --routes` shows ways through the course")
    if earlier := [str(file) for file in progress.damaged_files() if str(file) not in kept.message]:
        print("\n".join(["these files were damaged and set aside; what you did may be in them:", *earlier]))
    return 0


def _show_routes() -> int:
    from amp_lessons.course.routes import following
    from amp_lessons.course.routes.catalogue import ROUTES
    from amp_lessons.course.routes.stops import duration

    kept = progress.read()
    _warn(kept.message)
    for route in ROUTES:
        print(f"{route.title}, {route.to} ({duration(route.minutes)})")
        print("\n".join(f"    {stop}" for stop in route.stops))
        print(f"  {following.said_of(route, kept)}\n")
    return 0


def _reset(name: str | None, sure: bool) -> int:
    titles = _titles(_read().records)
    try:
        exercise_id = None if name is None else _meant(name, titles)
    except ValueError as error:
        return typed.refuse(error)
    what = (
        f"the record of {_told(exercise_id, titles)}"
        if exercise_id is not None
        else f"the records of {len(titles)} exercises, and what you practised"
    )
    if not (sure or _confirmed(f"Forget {what}? This cannot be undone. [y/N] ")):
        print("nothing was changed")
        return 1
    _warn(progress.change(lambda kept: kept.forget(exercise_id)))
    print(f"forgot {what}")
    return 0


def _titles(recorded: Iterable[str]) -> dict[str, str]:
    """Return the titles of what is recorded, by id; an exercise that there is no longer has its id alone."""
    from amp_lessons.course import exercises

    titles = {exercise.id: exercise.title for exercise in exercises.catalog()}
    return {each: titles.get(each, each) for each in recorded}


def _meant(name: str, titles: Mapping[str, str]) -> str:
    """Return the id of the recorded exercise with this id or title, or whose id or title alone begins so.

    Raises ValueError where none has it, or several have.
    """
    wanted = name.casefold()
    spelt = {each: (each.casefold(), title.casefold()) for each, title in titles.items()}
    whole = [each for each, names in spelt.items() if wanted in names]
    begun = [each for each, names in spelt.items() if any(known.startswith(wanted) for known in names)]
    found = whole or begun
    if len(found) == 1:
        return found[0]
    offered = ", ".join(_told(each, titles) for each in found or titles) or "nothing"
    if found:
        raise ValueError(f"{name!r} may be any of these, so write more of it: {offered}")
    raise ValueError(f"nothing is recorded for {name!r}; there is: {offered}")


def _told(exercise_id: str, titles: Mapping[str, str]) -> str:
    """Write an exercise with its title, and with its id, which is shorter to type."""
    return f'"{titles[exercise_id]}" ({exercise_id})'


def _confirmed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
