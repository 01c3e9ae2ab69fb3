"""The ``amp-lessons`` command.

Each subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int``, listed in ``COMMANDS``.

One that hands options it does not know to another program says so with ``parser.set_defaults(passed_on=[])``
and finds them in ``args.passed_on``; one that hands on what stands after ``--``, whatever it is, with
``parser.set_defaults(after_dashes=[])``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# (name, module, help): only the module of the command that is called gets imported.
COMMANDS = (
    ("lab", "amp_lessons.commands.lab", "open your own copy of the lessons in JupyterLab"),
    (
        "reset",
        "amp_lessons.commands.reset",
        "give you a fresh copy of a lesson, and keep yours beside it",
    ),
    (
        "doctor",
        "amp_lessons.commands.doctor",
        "say what this machine can do, what is missing, and how to mend it",
    ),
    ("progress", "amp_lessons.commands.progress", "show, export or reset what you have done"),
    ("bench", "amp_lessons.commands.bench", "measure well-known models in every precision"),
    (
        "interview",
        "amp_lessons.commands.interview",
        "practise for an interview: cards, drills, a mock interview",
    ),
    ("audit", "amp_lessons.commands.audit", "run your training script, and say what is wrong with it"),
    ("groups", "amp_lessons.commands.groups", "for teachers: other variants for every group, with answers"),
    ("advise", "amp_lessons.commands.advise", "say whether to train your model in mixed precision, and how"),
    ("grade", "amp_lessons.commands.grade", "check what learners hand in, and write the grades"),
)


# What shells report of a program that Ctrl-C, or a reader that has gone, has ended.
INTERRUPTED = 130
READER_GONE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process's own) and return the exit status.

    What holds for every command is here: a sign that the terminal cannot show becomes a question mark, and a
    reader that has gone (``| head``) or Ctrl-C end a command without a traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            print(end="", flush=True)  # else Python itself would find out, at its end, that nobody reads
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries once more at its end
        return READER_GONE
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C, while Python ends, has no traceback
        print(file=sys.stderr)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    own, after = _parted(arguments)
    parser = _build_parser(own)
    args, unknown = parser.parse_known_args(own)
    if hasattr(args, "after_dashes"):
        args.after_dashes = after
    elif after:
        args, unknown = parser.parse_known_args(arguments)
    if unknown:
        if not hasattr(args, "passed_on"):
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        args.passed_on = unknown
    return args.run(args)


def _parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Part arguments at the first ``--``: argparse would not tell which of them stood behind it."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place + 1 :]


def _build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amp-lessons", description="An interactive course on mixed precision training."
    )
    parser.add_argument("--version", action="version", version=f"amp-lessons {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module_name, summary in COMMANDS:
        subparser = subparsers.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        if name in arguments:
            module = importlib.import_module(module_name)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def _version() -> str:
    try:
        return metadata.version("amp-lessons")
    except metadata.PackageNotFoundError:
        return f"(not installed; it runs from {Path(__file__).parents[2]})"
