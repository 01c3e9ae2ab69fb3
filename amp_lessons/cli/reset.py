"""``amp-lessons reset``: a fresh copy of a lesson, with the learner's own kept beside it."""

from __future__ import annotations

import argparse
from pathlib import Path

from amp_lessons.cli.lab import CannotOpenError, original_lessons, own_folder, unwritable
from amp_lessons.cli.typed import refuse
from amp_lessons.course import lessons


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("lessons", nargs="+", metavar="LESSON", help="its number, such as 03")
    parser.add_argument(
        "--folder", type=Path, help="your copy of the lessons (default: the one you are in, else my_lessons)"
    )


def run(args: argparse.Namespace) -> int:
    """Reset the lessons and say what was kept where; 1 with a sentence if that cannot be."""
    folder = own_folder(args.folder)
    if not lessons.is_copy(folder):
        return refuse(
            f"{folder} is no copy of the lessons. Change into yours, or name it: --folder FOLDER. "
            "If you have none yet, `amp-lessons lab` makes one."
        )
    try:
        for number in args.lessons:
            reset = lessons.reset(folder, original_lessons(), number)
            kept = f" What you had made of it is in {reset.kept.name}." if reset.kept else ""
            print(f"{reset.lesson.name} is as it came.{kept}")
    except (CannotOpenError, ValueError) as error:
        return refuse(error)
    except OSError as error:
        return refuse(unwritable(error, folder))
    return 0
