"""``amp-lessons compare``: run two scripts, or one twice, and say where their computations part.

Each runs as ``__main__`` in a child process (``child``), as under ``amp-lessons audit``, which keeps what it
recorded in a file. Such a file, of another machine or another PyTorch, can stand in the place of a script.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from amp_lessons.cli import typed
from amp_lessons.cli.audit import parent

if TYPE_CHECKING:
    from amp_lessons.audit.comparing.comparison import Comparison
    from amp_lessons.audit.comparing.recording import Recording

_CHILD = "amp_lessons.cli.compare.child"
_NUDGED_STEPS = 3  # that are recorded: what a module makes of rounding hardly changes from one to the next
_PRECISIONS = ("fp32", "fp16", "bf16")
_AS_EXPLAINED, _PART, _NOT_COMPARED = 0, 1, 2
_EPILOG = (
    "Both must draw the same numbers: seed them, and their data loaders. Three steps of the first are run "
    "once more, with every number nudged by a unit roundoff of the coarser format, to see how much that "
    "explains. A run whose weights go less than half as far as the other's parts, too. Precision "
    "is forced by autocast around the outermost module, whose result is cast to fp32; fp32 switches autocast "
    "off. Exit status: 0, the runs part no further than their formats explain; 1, they do; 2, they could not "
    "be run, or not be compared. In a notebook: `with audit.recording(model) as run:`, twice, and "
    "`audit.compare(one, other)`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command; what stands after ``--`` is for both scripts."""
    parser.usage = "amp-lessons compare [options] A [B] [-- arguments of both scripts]"
    parser.epilog = _EPILOG
    parser.set_defaults(after_dashes=[])
    parser.add_argument("script", metavar="A", help="a Python file to run, or a recording (.json)")
    parser.add_argument("other", nargs="?", metavar="B", help="the same; left out, A is run twice")
    for name, which in (("--precision", "the first"), ("--against", "the second")):
        parser.add_argument(name, choices=_PRECISIONS, default="", help=f"force a precision on {which} run")
    for name, which in (("--args", "first"), ("--against-args", "second")):
        parser.add_argument(
            name, default="", metavar="TEXT", help=f"more arguments, of the {which} script only, in one text"
        )
    steps = "end each run after N optimizer steps (default: 10)"
    parser.add_argument("--steps", type=typed.whole(), default=10, metavar="N", help=steps)
    every = "record every K-th step (default: the first three, and then ever rarer: 5, 9, 17, …)"
    parser.add_argument("--every", type=typed.whole(), metavar="K", help=every)
    parser.add_argument(
        "--no-noise", action="store_true", help="do not run the first once more, nudged: estimate instead"
    )
    parser.add_argument("--noise", metavar="FILE", help="a recording of the first run, nudged (--record)")
    parser.add_argument(
        "--record", type=typed.folder_to_write, metavar="FOLDER", help="keep the recordings in a folder"
    )
    typed.add_file(parser, "--html", "write the comparison as a page with pictures")
    typed.add_file(parser, "--json", "write it for programs to read")


def run(args: argparse.Namespace) -> int:
    """Run both, print where they part, and return what ``add_arguments`` says."""
    if obstacle := _obstacle(args):
        return typed.refuse(f"amp-lessons compare: {obstacle}", _NOT_COMPARED)
    with tempfile.TemporaryDirectory(prefix="amp-lessons-compare-") as folder:
        try:
            comparison = _compared(args, _sides(args), Path(folder))
            _publish(args, comparison, Path(folder))
        except (OSError, ValueError, _NotRunError) as error:
            return typed.refuse(f"amp-lessons compare: {error}", _NOT_COMPARED)
    if comparison.obstacle:
        return _NOT_COMPARED
    return _AS_EXPLAINED if comparison.as_explained else _PART


@dataclass(frozen=True)
class Options:
    """The script, its precision ("" for its own), and where its recording is kept.

    ``steps`` end it, every ``every``-th is recorded, for None ever rarer ones. ``between`` are the files of
    two recordings by whose formats the run is nudged, none for a run that is only recorded.
    """

    kept: str
    script: str
    steps: int
    every: int | None = None
    precision: str = ""
    between: tuple[str, ...] = ()


class _NotRunError(Exception):
    """A script ended without a recording; the message says how."""


@dataclass(frozen=True)
class _Side:
    """One of the two: a file, its arguments and its precision."""

    name: str
    file: str
    arguments: tuple[str, ...]
    precision: str

    @property
    def is_recording(self) -> bool:
        return Path(self.file).suffix == ".json"

    def kept(self, folder: Path) -> Path:
        return Path(self.file) if self.is_recording else folder / f"{self.name}.json"


def _sides(args: argparse.Namespace) -> tuple[_Side, _Side]:
    both = tuple(args.after_dashes)
    first = _Side("first", args.script, (*both, *shlex.split(args.args)), args.precision)
    other = args.other if args.other is not None else args.script
    return first, _Side("second", other, (*both, *shlex.split(args.against_args)), args.against)


def _compared(args: argparse.Namespace, sides: tuple[_Side, _Side], folder: Path) -> Comparison:
    """Run what is to be run, and compare."""
    from amp_lessons.audit.comparing.comparison import compare
    from amp_lessons.audit.comparing.recording import Recording

    options = Options(kept="", script="", steps=args.steps, every=args.every)
    a, b = (_recorded(side, options, folder) for side in sides)
    if args.noise:
        return compare(a, b, Recording.load(args.noise))
    if args.no_noise or sides[0].is_recording:
        return compare(a, b)
    between = tuple(str(side.kept(folder)) for side in sides)
    nudged = replace(sides[0], name="nudged")
    print(f"amp-lessons compare: running {nudged.file} once more, nudged", file=sys.stderr)
    steps = max(a.steps[:_NUDGED_STEPS], default=0) + 1
    return compare(a, b, _recorded(nudged, replace(options, steps=steps, between=between), folder))


def _recorded(side: _Side, options: Options, folder: Path) -> Recording:
    """Return the recording of a side, made now unless it is one. Raises _NotRunError, OSError, ValueError."""
    from amp_lessons.audit.comparing.recording import Recording

    kept = side.kept(folder)
    if not side.is_recording:
        handed = replace(options, kept=str(kept), script=side.file, precision=side.precision)
        status = parent.run_child(handed, side.arguments, child=_CHILD)
        if not kept.exists():
            raise _NotRunError(f"{side.file} ended with status {status}, before it had imported PyTorch")
        if status:
            print(f"amp-lessons compare: {side.file} ended with status {status}", file=sys.stderr)
    return Recording.load(kept)


def _publish(args: argparse.Namespace, comparison: Comparison, folder: Path) -> None:
    """Print the comparison, and write the files that were asked for. Raises OSError."""
    print(comparison)
    if args.json:
        typed.write(args.json, comparison.as_json())
    if args.html:
        from amp_lessons.audit.page import comparison_page  # it loads matplotlib

        typed.write(args.html, comparison_page(comparison))
    if args.record:
        args.record.mkdir(parents=True, exist_ok=True)
        for file in sorted(folder.glob("*.json")):
            shutil.copy(file, args.record / file.name)
            typed.wrote(args.record / file.name)


def _obstacle(args: argparse.Namespace) -> str:
    """Describe what is wrong before anything runs; "" where nothing is."""
    for file in (args.script, args.other, args.noise):
        if file is not None and file.endswith(".ipynb"):
            return f"{file} is a notebook; in it, use `with audit.recording(model) as run:`"
        if file is not None and not Path(file).is_file():
            return f"there is no file {file}"
    first, other = _sides(args)
    if args.noise is not None and not args.noise.endswith(".json"):
        return f"{args.noise} is no recording; --record keeps them, the nudged one as nudged.json"
    for side in (first, other):
        if side.is_recording and (side.precision or side.arguments):
            return f"{side.file} is a recording: it has its precision and its arguments already"
    return ""
