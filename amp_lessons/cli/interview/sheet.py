"""``amp-lessons interview sheet``: one page with what to know by heart."""

from __future__ import annotations

import argparse

from amp_lessons.cli import typed
from amp_lessons.course import interview


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview sheet``."""
    parser.add_argument(
        "--html", type=typed.file_to_write, metavar="FILE", help="write it as a page that prints on A4"
    )
    parser.add_argument(
        "--pdf", type=typed.file_to_write, metavar="FILE", help="write it as a PDF of one page"
    )


def run(args: argparse.Namespace) -> int:
    """Write the sheet where it was asked for, else print it."""
    for path in filter(None, (args.html, args.pdf)):
        typed.try_writing(path)
    sheet = interview.sheet()
    if not (args.html or args.pdf):
        print(sheet)
        return 0
    from amp_lessons.course.views.pages.sheet import sheet_page, sheet_pdf

    if args.html:
        typed.write(args.html, sheet_page(sheet))
    if args.pdf:
        typed.write(args.pdf, sheet_pdf(sheet))
    return 0
