"""``amp-lessons grade``: check what learners hand in, whatever it does, and write the grades."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from amp_lessons._base import files
from amp_lessons.cli import typed

if TYPE_CHECKING:
    from amp_lessons.teaching.grading import Grades

GRADED, NOT_RUN = 0, 2

_EPILOG = (
    "SUBMISSIONS holds notebooks (`ada.ipynb`, `ada_03_loss_scaling.ipynb`) or a folder of notebooks for "
    "each learner. No notebook is run: each attempt is taken out of it and checked again, in a process of "
    "its own with limits of time and memory, behind a wall of Docker, Podman or bubblewrap; where none of "
    "them works nothing stands between a submission and your account, and --unprotected says so. In the "
    "table, 1 is passed, 0 not passed, · not attempted, – not handed in. Where there is a ! the lines "
    "below the table say what to look at. Exit status: 0, all was graded; 2, nothing could be."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "submissions", type=Path, metavar="SUBMISSIONS", help="the folder with what was handed in"
    )
    parser.add_argument(
        "--exercise",
        action="append",
        default=[],
        metavar="ID",
        help="grade this exercise alone; again for more",
    )
    parser.add_argument(
        "--out",
        type=typed.folder_to_write,
        metavar="FOLDER",
        help="write grades.csv and a page for each learner",
    )
    parser.add_argument(
        "--unprotected",
        action="store_true",
        help="grade where no wall works, too: learners' code can then read the solutions and your files, "
        "write what you may, and use your network",
    )
    parser.add_argument(
        "--seconds", type=typed.above_zero, default=20.0, metavar="S", help="of one check (default: 20)"
    )
    parser.add_argument(
        "--memory",
        type=typed.above_zero,
        default=4.0,
        metavar="GIB",
        help="of one attempt, in GiB (default: 4)",
    )
    parser.add_argument(
        "--jobs", type=typed.whole(), metavar="N", help="attempts at once (default: half of the cores)"
    )


def run(args: argparse.Namespace) -> int:
    """Grade, print the table, write the files, and return what ``add_arguments`` says."""
    from amp_lessons.teaching.grading import Limits, Terms, grade

    if args.submissions.is_file():
        said = f"{args.submissions} is a file; name the folder that holds it"
        return typed.refuse(f"amp-lessons grade: {said}", NOT_RUN)
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        jobs = args.jobs or max(1, (os.cpu_count() or 2) // 2)
        limits = Limits(memory_bytes=int(args.memory * 2**30))
        terms = Terms(args.seconds, limits, jobs, args.unprotected)
        grades = grade(args.submissions, args.exercise, terms)
    except (ValueError, OSError) as error:
        return typed.refuse(f"amp-lessons grade: {error}", NOT_RUN)
    print(grades.as_table())
    for line in grades.remarks():
        print(f"! {line}")
    print(f"\n{grades.about}")
    if args.out:
        _write(args.out, grades)
    return GRADED


def _write(folder: Path, grades: Grades) -> None:
    from amp_lessons.teaching.grading import file_name, page

    files.replace(folder / "grades.csv", grades.as_csv())
    for number, each in enumerate(grades.learners, start=1):
        files.replace(folder / file_name(each, number), page(each, grades.about))
    print(f"written to {folder}: grades.csv, and a page for each of {len(grades.learners)} learners")
