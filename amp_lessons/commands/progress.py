"""``amp-lessons progress``: show, export or reset what this learner has done."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from amp_lessons.keeping import progress

_ALL = object()  # no word that anybody could type


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons progress``."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--csv", metavar="FILE", help="export as CSV; - writes to the terminal")
    what.add_argument("--json", metavar="FILE", help="export as JSON; - writes to the terminal")
    what.add_argument(
        "--reset",
        nargs="?",
        const=_ALL,
        type=_exercise_id,
        metavar="EXERCISE",
        help="forget one exercise, or all; asks first",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before --reset")


def _exercise_id(word: str) -> str:
    """Refuse an empty word: it comes from a shell variable that is not set, and nobody meant "all" by it."""
    if not word.strip():
        raise argparse.ArgumentTypeError("the id of an exercise is empty; give no id at all to forget all")
    return word


def run(args: argparse.Namespace) -> int:
    """Carry out ``amp-lessons progress``; return its exit status."""
    try:
        if args.csv is not None:
            return _export(_read().as_csv(), args.csv)
        if args.json is not None:
            return _export(_read().as_json(), args.json)
        if args.reset is not None:
            return _reset(None if args.reset is _ALL else args.reset, args.yes)
        return _show()
    except BrokenPipeError:  # nobody reads any more: the business of cli.main
        raise
    except (progress.ProgressError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _read() -> progress.Progress:
    """Read progress; tell of a damaged file where it does not mix with what is exported."""
    found = progress.read()
    _warn(found.message)
    return found


def _warn(message: str) -> None:
    if message:
        print(message, file=sys.stderr)


def _show() -> int:
    from amp_lessons import exercises

    found = exercises.overview()
    print(found)
    print(f"\nkept in {progress.path()}")
    if earlier := [str(file) for file in progress.damaged_files() if str(file) not in found.message]:
        print("\n".join(["these files were damaged and set aside; what you did may be in them:", *earlier]))
    return 0


def _export(text: str, target: str) -> int:
    if target == "-":
        print(text, end="")
    else:
        Path(target).write_text(text, encoding="utf-8")
        print(f"written to {target}")
    return 0


def _reset(exercise_id: str | None, sure: bool) -> int:
    known = _read().records
    if exercise_id is not None and exercise_id not in known:
        print(
            f"nothing is recorded for {exercise_id!r}; there is: {', '.join(known) or 'nothing'}",
            file=sys.stderr,
        )
        return 1
    what = (
        f"the record of {exercise_id}"
        if exercise_id
        else f"the records of {len(known)} exercises, and what you practised"
    )
    if not (sure or _confirmed(f"Forget {what}? This cannot be undone. [y/N] ")):
        print("nothing was changed")
        return 1
    _warn(progress.reset(exercise_id))
    print(f"forgot {what}")
    return 0


def _confirmed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
