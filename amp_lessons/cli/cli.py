"""The ``amp-lessons`` command.

Each subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int``, listed in ``GROUPS``.

One that hands options it does not know to another program says so with ``parser.set_defaults(passed_on=[])``
and finds them in ``args.passed_on``; one that hands on what stands after ``--``, whatever it is, with
``parser.set_defaults(after_dashes=[])``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.cli import typed

# For whom, and of each command its name, which is its module's, and help: only the one called is imported.
GROUPS = {
    "to learn": (
        ("lab", "open your own copy of the lessons in JupyterLab"),
        ("reset", "give you a fresh copy of a lesson, and keep yours beside it"),
        ("progress", "show, export or reset what you have done"),
        ("interview", "practise for an interview: cards, drills, a mock interview"),
    ),
    "for your own training": (
        ("advise", "say whether to train your model in mixed precision, and how"),
        ("audit", "run your training script, and say what is wrong with it"),
        ("compare", "run two trainings, or one in two precisions, and say where they part"),
        ("explain", "say what an error, or the code of a finding, means"),
    ),
    "about this machine": (
        ("doctor", "say what this machine can do, what is missing, and how to mend it"),
        ("bench", "measure well-known models in every precision"),
    ),
    "to teach": (
        ("groups", "for teachers: other variants for every group, with answers"),
        ("grade", "check what learners hand in, and write the grades"),
        ("site", "write the course as pages, to be read without a kernel"),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)

# All other commands are the course's. They need these of what `amp-lessons[lab]` brings, by the names under
# which they are imported. JupyterLab is not among them: with another editor the course runs without it.
_INSTRUMENTS = {"advise", "audit", "compare", "explain"}
_OF_THE_COURSE = ("anywidget", "fsrs", "ipywidgets", "matplotlib", "platformdirs", "sklearn")
NOT_INSTALLED = 2

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
    # argparse would not tell which of them stood behind the first --
    place = arguments.index("--") if "--" in arguments else len(arguments)
    own, after = arguments[:place], arguments[place + 1 :]
    if missing := _missing_for(next((each for each in own if not each.startswith("-")), "")):
        return typed.refuse(missing, NOT_INSTALLED)
    parser = _build_parser(own)
    if not arguments:
        parser.print_help()
        return 0
    names = [name for name, _ in COMMANDS]
    if not arguments[0].startswith("-") and arguments[0] not in names:
        parser.error(f"there is no command {arguments[0]!r}; {did_you_mean(arguments[0], names)}")
    args, unknown = parser.parse_known_args(own)
    if hasattr(args, "after_dashes"):
        args.after_dashes = after
    elif after:
        args, unknown = parser.parse_known_args(arguments)
    if unknown:
        if not hasattr(args, "passed_on"):
            args.parser.error(_unknown(args, unknown))
        args.passed_on = unknown
    return args.run(args)


def _unknown(args: argparse.Namespace, unknown: list[str]) -> str:
    """Return the message for arguments that a command does not know: where they belong, or what was meant."""
    unknown = [word for word in unknown if word != "--"]
    words = shlex.join(unknown)
    if hasattr(args, "after_dashes"):
        behind = f"{args.parser.prog} {args.script or 'train.py'} -- {words}"
        return f"it does not know {words}. Arguments for the script go behind --, as in: {behind}"
    options = [option for action in args.parser._actions for option in action.option_strings]
    first = unknown[0].partition("=")[0]
    return f"it does not know {words}" + (
        f"; {did_you_mean(first, options)}" if first.startswith("-") else ", and takes nothing more"
    )


def _missing_for(command: str) -> str:
    """Describe how to install the course where a command needs it and it is not there; "" otherwise."""
    if command in _INSTRUMENTS or command not in {name for name, _ in COMMANDS}:
        return ""
    missing = ", ".join(name for name in _OF_THE_COURSE if importlib.util.find_spec(name) is None)
    said = f"amp-lessons {command} is a part of the course, which is not installed here: no {missing}."
    return f"{said} This installs it: pip install 'amp-lessons[lab]'" if missing else ""


def _build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    epilog = ["Begin with `amp-lessons lab`; `amp-lessons COMMAND --help` says more of each."]
    for group, commands in GROUPS.items():
        epilog += ["", f"{group}:", *(f"  {name:11}{summary}" for name, summary in commands)]
    parser = argparse.ArgumentParser(
        prog="amp-lessons",
        usage="amp-lessons COMMAND [OPTION ...]",
        description="An interactive course on mixed precision training, and its instruments for your own.",
        epilog="\n".join(epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"amp-lessons {_version()}")
    subparsers = parser.add_subparsers(
        metavar="COMMAND", required=True, prog="amp-lessons", help=argparse.SUPPRESS
    )
    for name, summary in COMMANDS:
        subparser = subparsers.add_parser(name, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in arguments:
            module = importlib.import_module(f"amp_lessons.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run, parser=subparser)
    return parser


def _version() -> str:
    try:
        return metadata.version("amp-lessons")
    except metadata.PackageNotFoundError:
        return f"(not installed; it runs from {Path(__file__).parents[2]})"
