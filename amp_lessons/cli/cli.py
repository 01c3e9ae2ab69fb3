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

# For whom, and (name, module, help): only the module of the command that is called gets imported.
GROUPS = {
    "to learn": (
        ("lab", "amp_lessons.cli.lab", "open your own copy of the lessons in JupyterLab"),
        (
            "reset",
            "amp_lessons.cli.reset",
            "give you a fresh copy of a lesson, and keep yours beside it",
        ),
        ("progress", "amp_lessons.cli.progress", "show, export or reset what you have done"),
        (
            "interview",
            "amp_lessons.cli.interview",
            "practise for an interview: cards, drills, a mock interview",
        ),
    ),
    "for your own training": (
        (
            "advise",
            "amp_lessons.cli.advise",
            "say whether to train your model in mixed precision, and how",
        ),
        ("audit", "amp_lessons.cli.audit", "run your training script, and say what is wrong with it"),
        (
            "compare",
            "amp_lessons.cli.compare",
            "run two trainings, or one in two precisions, and say where they part",
        ),
        ("explain", "amp_lessons.cli.explain", "say what an error, or the code of a finding, means"),
    ),
    "about this machine": (
        (
            "doctor",
            "amp_lessons.cli.doctor",
            "say what this machine can do, what is missing, and how to mend it",
        ),
        ("bench", "amp_lessons.cli.bench", "measure well-known models in every precision"),
    ),
    "to teach": (
        (
            "groups",
            "amp_lessons.cli.groups",
            "for teachers: other variants for every group, with answers",
        ),
        ("grade", "amp_lessons.cli.grade", "check what learners hand in, and write the grades"),
        ("site", "amp_lessons.cli.site", "write the course as pages, to be read without a kernel"),
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
    own, after = _parted(arguments)
    if missing := _missing_for(next((each for each in own if not each.startswith("-")), "")):
        return typed.refuse(missing, NOT_INSTALLED)
    parser = _build_parser(own)
    if not arguments:
        parser.print_help()
        return 0
    _require_command(parser, arguments[0])
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


def _require_command(parser: argparse.ArgumentParser, word: str) -> None:
    """Refuse a first word that is neither an option nor a command."""
    names = [name for name, _, _ in COMMANDS]
    if not word.startswith("-") and word not in names:
        parser.error(f"there is no command {word!r}; {did_you_mean(word, names)}")


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
    if command in _INSTRUMENTS or command not in {name for name, _, _ in COMMANDS}:
        return ""
    missing = ", ".join(name for name in _OF_THE_COURSE if importlib.util.find_spec(name) is None)
    said = f"amp-lessons {command} is a part of the course, which is not installed here: no {missing}."
    return f"{said} This installs it: pip install 'amp-lessons[lab]'" if missing else ""


def _parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Part arguments at the first ``--``: argparse would not tell which of them stood behind it."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place + 1 :]


def _build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amp-lessons",
        usage="amp-lessons COMMAND [OPTION ...]",
        description="An interactive course on mixed precision training, and its instruments for your own.",
        epilog=_grouped(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"amp-lessons {_version()}")
    subparsers = parser.add_subparsers(
        metavar="COMMAND", required=True, prog="amp-lessons", help=argparse.SUPPRESS
    )
    for name, module_name, summary in COMMANDS:
        subparser = subparsers.add_parser(name, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in arguments:
            module = importlib.import_module(module_name)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run, parser=subparser)
    return parser


def _grouped() -> str:
    """List the commands for those who want to learn, to look at their own training, to teach."""
    lines = ["Begin with `amp-lessons lab`; `amp-lessons COMMAND --help` says more of each."]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:11}{summary}" for name, _, summary in commands)]
    return "\n".join(lines)


def _version() -> str:
    try:
        return metadata.version("amp-lessons")
    except metadata.PackageNotFoundError:
        return f"(not installed; it runs from {Path(__file__).parents[2]})"
