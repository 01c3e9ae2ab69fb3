"""The ``amp-lessons`` command.

Each subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int``, listed in ``COMMANDS``.

One that hands options it does not know to another program says so with ``parser.set_defaults(passed_on=[])``
and finds them in ``args.passed_on``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

# (name, module, help): only the module of the command that is called gets imported.
COMMANDS = (
    ("lab", "amp_lessons.lab", "open the course in JupyterLab"),
    ("doctor", "amp_lessons.doctor", "say what this machine can do, what is missing, and how to mend it"),
    ("progress", "amp_lessons.commands.progress", "show, export or reset what you have done"),
    ("bench", "amp_lessons.commands.bench", "measure four well-known models in every precision"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: this process's own) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _build_parser(arguments)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        if not hasattr(args, "passed_on"):
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        args.passed_on = unknown
    return args.run(args)


def _build_parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amp-lessons", description="An interactive course on mixed precision training."
    )
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
