"""``amp-lessons site``: write the course as pages, to be read without a kernel."""

from __future__ import annotations

import argparse

from platformdirs import user_cache_path

from amp_lessons._base.text.words import counted
from amp_lessons.cli.typed import folder_to_write, refuse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "out", metavar="OUT", type=folder_to_write, help="a new or empty folder, or an older site"
    )
    parser.add_argument(
        "--frames",
        type=folder_to_write,
        default=user_cache_path("amp-lessons") / "site",
        help="where what takes minutes to compute is kept, until what it depends on changes (%(default)s)",
    )
    parser.add_argument("--still", action="store_true", help="compute nothing: all views stand as pictures")


def run(args: argparse.Namespace) -> int:
    """Write the pages and say where they begin; 1 with a sentence if that cannot be."""
    try:
        from amp_lessons.course.site.build import build
    except ImportError as error:
        return refuse(f"the pages are made with {error.name}, which is not installed: pip install nbconvert")
    try:
        pages = build(args.out, None if args.still else args.frames)
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        return refuse(error)
    print(f"{counted(len(pages), 'page')}: open {args.out / 'index.html'} in a browser. No server is needed.")
    return 0
